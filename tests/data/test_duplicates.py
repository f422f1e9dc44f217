"""A packed set behaves as a set."""

import random

from bertsmith.data.shards.duplicates import DigestSet


def test_a_digest_set_holds_what_a_set_holds() -> None:
    chance, seen, known = random.Random(0), DigestSet(), set[bytes]()
    for _ in range(30_000):
        digest = chance.randrange(20_000).to_bytes(2, "big") * 8  # some often, some never, many alike
        assert seen.add(digest) == (digest not in known)
        known.add(digest)
    assert len(seen) == len(known) > 10_000


def test_digests_that_share_their_first_half_are_kept_apart() -> None:
    seen = DigestSet()
    digests = [bytes(8) + number.to_bytes(8, "little") for number in range(2_000)]
    digests += [(1).to_bytes(8, "little") + bytes(8)]  # stands where a first half of zeros stands
    assert [seen.add(digest) for digest in digests[:-1]] == [True] * 2_000
    assert [seen.add(digest) for digest in digests[:-1]] == [False] * 2_000


def test_memory_for_a_digest_is_at_most_48_bytes() -> None:
    chance, seen = random.Random(1), DigestSet()
    for count in range(1, 20_000):
        seen.add(chance.randbytes(16))
        if count > 1_000:
            assert 24 <= 16 * len(seen._low) / count <= 48.1
