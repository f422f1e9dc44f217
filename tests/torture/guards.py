"""The guards that trust rests on, what stands in their place when they are removed, and the tests that must then fail.

`make mutants` removes them one at a time. A guard is named by its own text, which stands in its file exactly once;
`tests/house/test_mutants.py` keeps that true.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Guard:
    """A piece of source that keeps a promise."""

    promise: str
    file: str  # below src/bertsmith
    text: str
    without: str
    tests: str  # below tests, by file or by file::test, with blanks between


CHECKPOINT, LOG, GUARDS = "train/test_checkpoint.py", "train/test_log.py", "train/test_guards.py"
SHARDS, VERIFICATION, SHARING = "data/test_shards.py", "data/test_verification.py", "test_sharing.py"
TRAINER, FILES, PREPARE = "train/test_trainer.py", "data/test_files.py", "data/test_prepare.py"
REFUSALS, VECTORS, LINT = "models/test_refusals.py", "train/test_vectors.py", "house/test_floors.py"
ORDER = f"{CHECKPOINT}::test_all_is_on_the_disk_before_it_gets_its_name"
FLIPS = f"{CHECKPOINT}::test_every_flipped_bit_is_found_and_the_checkpoint_before_is_used"
KILLS = f"{CHECKPOINT}::test_a_kill_at_any_call_harms_no_checkpoint"
SECOND = f"{SHARING}::test_a_second_start_is_refused_at_once_and_a_killed_one_leaves_no_lock"


def _locked(verb: str, file: str, text: str, without: str = "    if True:") -> Guard:
    return Guard(f"a second {verb} in the same folder is refused", file, text, without, f"{SECOND}[{verb}]")


DURABLE = [
    Guard("a file is synced", "data/files.py", "            os.fsync(self._file)", "            pass", ORDER),
    Guard("a folder is synced", "data/files.py", "            os.fsync(folder)", "            pass", ORDER),
    Guard(
        "a file is put in place by a rename",
        "data/files.py",
        "    digest = write(beside, data)",
        "    digest = write(beside, data)\n    write(path, data)",
        FILES,
    ),
    Guard(
        "the name of a file is synced",
        "data/files.py",
        "    sync_folder(path.parent)\n    return digest",
        "    return digest",
        FILES,
    ),
    Guard(
        "a folder is synced before it gets its name",
        "data/files.py",
        "    sync_folder(temporary)\n",
        "",
        ORDER,
    ),
    Guard("a folder is never overwritten", "data/files.py", "    if final.exists():\n", "    if False:\n", FILES),
    Guard("the name of a folder is synced", "data/files.py", "    sync_folder(final.parent)", "    pass", ORDER),
    Guard(
        "a disk that takes less is given the rest",
        "data/files.py",
        "            while piece:  #",
        "            if piece:  #",
        f"{CHECKPOINT}::test_a_disk_that_takes_less_than_it_is_given_is_given_the_rest",
    ),
    Guard(
        "a full disk is told in one line",
        "data/files.py",
        "            case errno.ENOSPC:",
        "            case -1:",
        f"{FILES} {TRAINER}::test_a_disk_that_fills_up_stops_the_run_in_one_line_and_loses_nothing",
    ),
]

SAVED = [
    Guard(
        "a checkpoint is hashed",
        "train/checkpoint.py",
        "    if sha256.hexdigest() != digest.sha256:",
        "    if False:",
        FLIPS,
    ),
    Guard(
        "a manifest has one possible text",
        "train/checkpoint.py",
        "manifest != _manifest(step, digests) or any(",
        "any(",
        f"{FLIPS} {CHECKPOINT}::test_a_checkpoint_under_another_name_is_found",
    ),
    Guard(
        "a manifest names no file elsewhere",
        "train/checkpoint.py",
        "any(Path(name).name != name for name in digests)",
        "False",
        "house/test_names.py train/test_checkpoint.py",
    ),
    Guard(
        "what a kill has left is swept",
        "train/checkpoint.py",
        '        for leftover in folder.glob(f"{TEMPORARY}*"):',
        "        for leftover in list[Path]():",
        f"{CHECKPOINT}::test_leftovers_of_a_kill_are_swept_at_the_next_save",
    ),
    Guard(
        "a broken checkpoint is replaced",
        "train/checkpoint.py",
        "        if not _is_whole(final):",
        "        if not final.exists():",
        f"{CHECKPOINT}::test_a_broken_checkpoint_of_the_same_step_is_replaced",
    ),
    Guard(
        "a later step pushes out no good checkpoint",
        "train/checkpoint.py",
        "in _all(folder) if step <= checkpoint.step]",
        "in _all(folder)]",
        f"{CHECKPOINT}::test_a_checkpoint_of_a_later_step_does_not_push_out_good_ones",
    ),
    Guard(
        "a checkpoint is removed under another name",
        "train/checkpoint.py",
        "    path.replace(doomed)",
        "    doomed = path",
        KILLS,
    ),
    Guard(
        "a checkpoint is written under another name",
        "train/checkpoint.py",
        '    temporary = final.with_name(f"{TEMPORARY}new-{final.name}")',
        "    temporary = final",
        KILLS,
    ),
    Guard(
        "a broken checkpoint is stepped over",
        "train/checkpoint.py",
        "            broken.append(str(error))",
        "            raise",
        FLIPS,
    ),
]

LOGGED = [
    Guard("the log is synced", "train/log.py", "                os.fsync(self._file)", "                pass", GUARDS),
    Guard("the log is rewound", "train/log.py", 'record.get("step", -1) > step:', "False:", LOG),
    Guard("a torn line is dropped", "train/log.py", 'if line.endswith(b"\\n") else None', "", LOG),
    Guard(
        "the log is rewound by a rename",
        "train/log.py",
        "                files.write(beside, kept)\n",
        "                files.write(self.path, b'')\n                files.write(beside, kept)\n",
        LOG,
    ),
    Guard("the log is synced before a checkpoint", "train/trainer.py", "        self.log.sync()\n", "", GUARDS),
    Guard("a resumed log is rewound", "train/trainer.py", "        self.log.rewind(self.step)\n", "", GUARDS),
    Guard(
        "the log of a start without a checkpoint is forgotten",
        "train/trainer.py",
        "            self.log.rewind(-1)\n",
        "",
        GUARDS,
    ),
]

LOCKED = [
    Guard(
        "a folder is locked",
        "train/lock.py",
        "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            pass",
        "train/test_lock.py",
    ),
    Guard(
        "a forked worker lets go of the lock",
        "train/lock.py",
        "os.register_at_fork(after_in_child=_forget_all)",
        "",
        "train/test_lock.py::test_a_killed_run_leaves_no_lock",
    ),
    _locked("pretrain", "run.py", "    with Lock(recipe.out):"),
    _locked("finetune", "tune.py", "    with Lock(recipe.out):"),
    _locked("make", "maker.py", "    with Lock(out):"),
    _locked("vectors", "words.py", "    with Lock(recipe.out):"),
    _locked(
        "prepare",
        "data/prepare.py",
        "            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            pass",
    ),
    Guard(
        "a second race in the same folder is refused",
        "race.py",
        "    with Lock(out):",
        "    if True:",
        f"{SHARING}::test_a_second_race_is_refused",
    ),
]

RESUMED = [
    Guard(
        "the clock goes on",
        "train/trainer.py",
        'Clock(self.config.extent, used=state["seconds"])',
        "Clock(self.config.extent)",
        GUARDS,
    ),
    Guard(
        "bad steps in a row are restored", "train/trainer.py", '= state["bad_in_a_row"], state', "= 0, state", GUARDS
    ),
    Guard("steps left out are restored", "train/trainer.py", '"], state["skipped"]', '"], 0', GUARDS),
    Guard(
        "the best score is restored",
        "train/trainer.py",
        '= state["best"], state["waited"]',
        '= {}, state["waited"]',
        GUARDS,
    ),
    Guard(
        "patience is restored",
        "train/trainer.py",
        'state["best"], state["waited"], saved',
        'state["best"], 0, saved',
        GUARDS,
    ),
    Guard("the best weights are restored", "train/trainer.py", 'saved.tensors.get("best", {})', "{}", GUARDS),
    Guard(
        "the best weights are saved",
        "train/trainer.py",
        '            tensors["best"] = self._best\n',
        "            pass\n",
        GUARDS,
    ),
    Guard(
        "other data is refused",
        "train/trainer.py",
        '        if saved.state["data"] != self.feed.fingerprint:',
        "        if False:",
        GUARDS,
    ),
    Guard(
        "the optimizer is restored",
        "train/trainer.py",
        '        self.optimizer.restore(saved.tensors["optimizer"])\n',
        "",
        f"{GUARDS} {TRAINER}::test_a_run_stopped_anywhere_goes_on_exactly",
    ),
    Guard(
        "the position in the data is restored",
        "train/trainer.py",
        'self.figures = state["position"],',
        "self.figures = self.feed.first(),",
        GUARDS,
    ),
    Guard(
        "ten bad steps in a row end a run",
        "train/trainer.py",
        "        if longest >= PATIENCE:",
        "        if False:",
        f"{TRAINER}::test_ten_bad_steps_in_a_row_end_the_run",
    ),
    Guard(
        "a bad step changes nothing",
        "train/optimizers.py",
        "        bad = ~torch.isfinite(norm)",
        "        bad = torch.isnan(norm) & False",
        f"{TRAINER}::test_a_step_that_is_not_a_number_changes_nothing_and_is_counted",
    ),
    Guard(
        "being asked to stop saves",
        "train/trainer.py",
        "                if signals.asked or _passed(",
        "                if _passed(",
        "train/test_kills.py::test_being_asked_to_stop_costs_at_most_one_step",
    ),
    Guard(
        "signals are given back",
        "train/signals.py",
        "            signal.signal(number, signal.SIG_DFL if handler is None else handler)",
        "            pass",
        "train/test_signals.py",
    ),
    Guard(
        "another recipe is refused",
        "run.py",
        "        settle(recipe, MAY_CHANGE)\n",
        "",
        f"{TRAINER}::test_the_folder_of_another_recipe_is_refused",
    ),
    Guard(
        "word vectors do not go on with other text",
        "train/vectors.py",
        '        if saved.state["data"] != self.text.fingerprint:',
        "        if False:",
        VECTORS,
    ),
    Guard(
        "the log of word vectors is rewound", "train/vectors.py", "        self.log.rewind(self.step)\n", "", VECTORS
    ),
    Guard(
        "the clock of word vectors goes on",
        "train/vectors.py",
        'Clock(self.config.extent, used=saved.state["seconds"])',
        "Clock(self.config.extent)",
        VECTORS,
    ),
]

PREPARED = [
    Guard(
        "the index of shards is hashed",
        "data/shards.py",
        '        self.compare("index.json", files.digest)\n',
        "",
        SHARDS,
    ),
    Guard(
        "a manifest of shards names only shards",
        "data/shards.py",
        r'        if not re.fullmatch(r"index\.json|\d{6}\.(tokens|sentences|documents)", name):',
        "        if False:",
        SHARDS,
    ),
    Guard(
        "an index names only shards",
        "data/shards.py",
        r're.fullmatch(r"\d{6}", shard["name"]) is not None',
        "True",
        SHARDS,
    ),
    Guard(
        "ends are in order",
        "data/shards.py",
        "            if found[-1] != span or found[0] <= 0 or (found[1:] <= found[:-1]).any():",
        "            if False:",
        SHARDS,
    ),
    Guard(
        "the sizes of shards are those of the manifest",
        "data/shards.py",
        "        if found.size != expected.size:",
        "        if False:",
        f"{SHARDS}::test_every_truncation_is_found_at_opening",
    ),
    Guard(
        "shards are hashed",
        "data/shards.py",
        "        if found.sha256 and found.sha256 != expected.sha256:",
        "        if False:",
        SHARDS,
    ),
    Guard(
        "a token beyond the vocabulary is found",
        "data/shards.py",
        "        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < self.vocabulary:",
        "        if False:",
        VERIFICATION,
    ),
    Guard("shards fit their tokenizer", "kit.py", "        shards.expect(tokenizer.fingerprint)\n", "", VERIFICATION),
    Guard(
        "little text is verified before the first step",
        "data/verification.py",
        "    if running.bytes <= SMALL:",
        "    if False:",
        VERIFICATION,
    ),
    Guard(
        "a young file is not remembered",
        "data/verification.py",
        " and time.time_ns() - before[3] > RECENT:",
        ":",
        VERIFICATION,
    ),
    Guard(
        "damage stops training",
        "data/feed.py",
        "            self.verification.poll()\n",
        "            pass\n",
        VERIFICATION,
    ),
    Guard(
        "a checkpoint waits for the verification",
        "train/trainer.py",
        "        self.feed.verify()\n        self._read_pending",
        "        self._read_pending",
        VERIFICATION,
    ),
    Guard(
        "a model waits for the verification",
        "train/trainer.py",
        "            self.feed.verify()\n        self.log.close()",
        "        self.log.close()",
        VERIFICATION,
    ),
    Guard("check verifies shards", "run.py", "            verify(shards).wait()\n", "            pass\n", VERIFICATION),
    Guard(
        "prepared text is verified",
        "data/prepare.py",
        "        verify(Shards(out / name)).wait()\n",
        "        pass\n",
        VERIFICATION,
    ),
    Guard(
        "text prepared in other ways is refused",
        "data/prepare.py",
        '    if changed := differences(told.pop("inputs", {}), inputs):',
        '    if changed := differences({}, {}) or told.pop("inputs", {}) and "":',
        PREPARE,
    ),
    Guard(
        "preparing goes on only as it was begun",
        "data/journal.py",
        'if self.entries and (changed := differences(journal["inputs"], inputs)):',
        "if changed := '':",
        PREPARE,
    ),
    Guard(
        "a shard that was left is as it was left",
        "data/split.py",
        '            if not path.is_file() or path.stat().st_size != digest["size"]:',
        "            if False:",
        SHARDS,
    ),
    Guard(
        "the beginning of a shard is cleared away",
        "data/split.py",
        "                    path.unlink()  #",
        "                    pass  #",
        SHARDS,
    ),
]

LIMITED = [
    Guard("no name leads out of a model folder", "models/folder.py", "    if not beside:", "    if False:", REFUSALS),
    Guard(
        "a name that cannot be printed is refused",
        "models/folder.py",
        " and (name + within).isprintable()",
        "",
        "house/test_names.py",
    ),
    Guard(
        "a configuration is small",
        "models/folder.py",
        "    if path.stat().st_size > MOST_JSON:",
        "    if False:",
        f"{REFUSALS}::test_an_endless_configuration_is_refused",
    ),
    Guard(
        "layers are as many as weights",
        "models/folder.py",
        " > len(stored) or layers > MOST_LAYERS:",
        " > 1 << 60:",
        f"{REFUSALS}::test_a_configuration_that_names_huge_sizes_costs_nothing",
    ),
    Guard(
        "nothing is unpickled",
        "data/shards.py",
        'ENDS = np.dtype("<i8")\n',
        'ENDS = np.dtype("<i8")\n\n\ndef _any(path: Path) -> Any:\n    return np.load(path, allow_pickle=True)\n',
        LINT,
    ),
    Guard(
        "tokenizer files are put in place at once",
        "text/folder.py",
        '    beside = file.with_name(file.name + ".writing")',
        "    beside = file",
        f"{GUARDS}::test_a_tokenizer_is_put_in_place_at_once",
    ),
]

TABLE = [*DURABLE, *SAVED, *LOGGED, *LOCKED, *RESUMED, *PREPARED, *LIMITED]
