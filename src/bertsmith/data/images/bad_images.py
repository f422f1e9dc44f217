"""Bad images: counted by reason, with the names of the first ones, or refused at once."""

from collections import defaultdict

from bertsmith.data.labelled.bad_rows import BadRows, Policy

NAMED = 5  # bad images that are named for each reason
NO_IMAGE, BROKEN = "files that are no image", "images that cannot be decoded"
TOO_LARGE, TOO_SMALL, EMPTY = "images that are too large", "images smaller than a patch", "empty files"
NO_FILE, OUTSIDE = "images that do not exist", "paths that lead out of the folder"
UNLABELLED, UNKNOWN = "images without a label", "images of an unknown class"
NO_PART = "rows of no known part"


class ImageError(ValueError):
    """An image that cannot be read: the reason by which it is counted, and the fact about this one."""

    def __init__(self, reason: str, fact: str) -> None:
        super().__init__(fact)
        self.reason, self.fact = reason, fact


class BadImages(BadRows):
    """The policy for bad images and rows; how many were dropped for each reason, and which came first."""

    def __init__(self, policy: Policy = "skip") -> None:
        super().__init__(policy)
        self.names = defaultdict[str, list[str]](list)

    def drop(self, reason: str, location: str, fact: str = "") -> None:
        super().drop(reason, location, fact)
        if len(self.names[reason]) < NAMED:
            self.names[reason].append(location)

    def describe(self) -> str:
        """One line for people, such as `2 images that cannot be decoded (a.png, b.png)`."""
        parts = []
        for reason, count in self.counts.items():
            more = ", ..." if count > NAMED else ""
            parts.append(f"{count:,} {reason} ({', '.join(self.names[reason])}{more})")
        return "; ".join(parts)
