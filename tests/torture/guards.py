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
TRAINER, FILES, PREPARE = "train/test_trainer.py", "test_files.py", "data/test_prepare.py"
CLUSTER, REMOTE = "data/test_cluster.py", "data/test_remote.py"
REFUSALS, VECTORS, LINT = "models/test_refusals.py", "train/test_word2vec.py", "house/test_floors.py"
ORDER = f"{CHECKPOINT}::test_all_is_on_the_disk_before_it_gets_its_name"
WRITER = "train/test_checkpoint_writer.py"
FLIPS = f"{CHECKPOINT}::test_every_flipped_bit_is_found_and_the_checkpoint_before_is_used"
KILLS = f"{CHECKPOINT}::test_a_kill_at_any_call_harms_no_checkpoint"
SYNCED = "test_the_log_is_on_the_disk_before_the_checkpoint_that_it_leads_to"
ONCE = "test_records_after_the_last_checkpoint_are_logged_once"
BEST = "test_the_best_weights_before_a_stop_are_the_best_after_it"
DURING_STEPS = "test_much_text_is_verified_during_the_first_steps_and_before_anything_is_written"
VECTORS_STOPPED = "test_records_after_the_last_checkpoint_are_logged_once_and_the_clock_resumes"
SECOND = f"{SHARING}::test_a_second_start_is_refused_at_once_and_a_killed_one_leaves_no_lock"


def _locked(verb: str, file: str, text: str, without: str = "    if True:") -> Guard:
    return Guard(f"a second {verb} in the same folder is refused", file, text, without, f"{SECOND}[{verb}]")


DURABLE = [
    Guard("a file is synced", "files.py", "            os.fsync(self._file)", "            pass", ORDER),
    Guard("a folder is synced", "files.py", "            os.fsync(folder)", "            pass", ORDER),
    Guard(
        "a file is put in place by a rename",
        "files.py",
        "    digest = write(temporary, data)",
        "    digest = write(temporary, data)\n    write(path, data)",
        f"{FILES}::test_json_is_old_or_new_whichever_call_fails",
    ),
    Guard(
        "the name of a file is synced",
        "files.py",
        "    sync_folder(path.parent)\n    return digest",
        "    return digest",
        f"{FILES}::test_every_file_and_its_folder_are_synced",
    ),
    Guard(
        "a folder is synced before it gets its name",
        "files.py",
        "    sync_folder(temporary)\n",
        "",
        ORDER,
    ),
    Guard(
        "a folder is never overwritten",
        "files.py",
        "    if final.exists():\n",
        "    if False:\n",
        f"{FILES}::test_publishing_moves_a_folder_and_overwrites_nothing",
    ),
    Guard("the name of a folder is synced", "files.py", "    sync_folder(final.parent)", "    pass", ORDER),
    Guard(
        "a disk that takes less is given the rest",
        "files.py",
        "            while piece:  #",
        "            if piece:  #",
        f"{CHECKPOINT}::test_a_disk_that_takes_less_than_it_is_given_is_given_the_rest",
    ),
    Guard(
        "a full disk is reported in one line",
        "files.py",
        "            case errno.ENOSPC:",
        "            case -1:",
        f"{FILES}::test_what_the_disk_refuses_is_one_line",
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
        "house/test_names.py::test_no_generated_name_leads_out_of_its_folder",
    ),
    Guard(
        "what a kill has left is swept",
        "train/checkpoint.py",
        '    for leftover in folder.glob(f"{TEMPORARY}*"):',
        "    for leftover in list[Path]():",
        f"{CHECKPOINT}::test_leftovers_of_a_kill_are_swept_at_the_next_save",
    ),
    Guard(
        "a broken checkpoint is replaced",
        "train/checkpoint.py",
        "    if _is_whole(final):",
        "    if final.exists():",
        f"{CHECKPOINT}::test_a_broken_checkpoint_of_the_same_step_is_replaced",
    ),
    Guard(
        "a later step pushes out no good checkpoint",
        "train/checkpoint.py",
        "in _list_newest_first(folder) if step <= checkpoint.step]",
        "in _list_newest_first(folder)]",
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
        '    temporary = final.with_name(f"{TEMPORARY}new-{final.name}-{secrets.token_hex(4)}")',
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
    Guard(
        "the log is synced",
        "train/log.py",
        "                os.fsync(self._file)",
        "                pass",
        f"{LOG}::test_sync_puts_the_log_on_the_disk {GUARDS}::{SYNCED}",
    ),
    Guard(
        "the log is rewound",
        "train/log.py",
        "in zip(found[:end], steps, strict=False) if one is None or one <= step]",
        "in zip(found, steps, strict=False)]",
        f"{LOG}::test_a_resumed_log_equals_an_undisturbed_one",
    ),
    Guard(
        "a torn line is dropped",
        "train/log.py",
        'if line.endswith(b"\\n") else None',
        "",
        f"{LOG}::test_a_torn_last_line_is_dropped_wherever_it_is_torn",
    ),
    Guard(
        "the log is rewound by a rename",
        "train/log.py",
        "                files.write(temporary, kept)\n",
        "                files.write(self.path, b'')\n                files.write(temporary, kept)\n",
        f"{LOG}::test_a_kill_while_rewinding_loses_nothing",
    ),
    Guard(
        "the log is synced before a checkpoint",
        "train/trainer.py",
        "        self.log.sync()\n",
        "",
        f"{GUARDS}::{SYNCED}",
    ),
    Guard(
        "a resumed log is rewound",
        "train/trainer.py",
        "self.log.rewind(begins, every_step=begins >= 0)",
        '"" if begins >= 0 else self.log.rewind(begins)',
        f"{GUARDS}::{ONCE}",
    ),
    Guard(
        "the log of a start without a checkpoint is forgotten",
        "train/trainer.py",
        "(damage := self.log.rewind(begins, every_step=begins >= 0))",
        '(damage := self.log.rewind(begins, every_step=True) if begins >= 0 else "")',
        f"{GUARDS}::{ONCE}",
    ),
]

LOCKED = [
    Guard(
        "a folder is locked",
        "train/lock.py",
        "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            pass",
        "train/test_lock.py::test_a_folder_is_locked_and_released",
    ),
    Guard(
        "a forked worker lets go of the lock",
        "train/lock.py",
        "os.register_at_fork(after_in_child=_release_all)",
        "",
        "train/test_lock.py::test_a_killed_run_leaves_no_lock",
    ),
    _locked("pretrain", "train/processes.py", "            with Lock(folder):", "            if True:"),
    _locked("finetune", "train/processes.py", "            with Lock(folder):", "            if True:"),
    _locked("make", "commands/make.py", "    with Lock(out):"),
    _locked("word2vec", "commands/word2vec.py", "    with Lock(recipe.out):"),
    _locked(
        "prepare",
        "data/shards/prepare.py",
        "            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            pass",
    ),
    Guard(
        "a second race in the same folder is refused",
        "commands/race.py",
        "    with Lock(out):",
        "    if True:",
        f"{SHARING}::test_a_second_race_is_refused",
    ),
]

RESUMED = [
    Guard(
        "the clock goes on",
        "train/trainer.py",
        "self.clock.resume(state.training_seconds, ",
        "self.clock.resume(0.0, ",
        f"{GUARDS}::test_a_resumed_run_counts_the_time_it_has_used",
    ),
    Guard(
        "bad steps in a row are restored",
        "train/run_state.py",
        "cls(step=checkpoint.step, **checkpoint.state)",
        'cls(step=checkpoint.step, **checkpoint.state | {"skipped_in_a_row": 0})',
        f"{GUARDS}::test_bad_steps_in_a_row_are_counted_across_a_stop",
    ),
    Guard(
        "steps left out are restored",
        "train/run_state.py",
        "cls(step=checkpoint.step, **checkpoint.state)",
        'cls(step=checkpoint.step, **checkpoint.state | {"skipped": 0})',
        f"{GUARDS}::test_skipped_steps_before_a_stop_are_counted_after_it",
    ),
    Guard(
        "the best score is restored",
        "train/run_state.py",
        "cls(step=checkpoint.step, **checkpoint.state)",
        'cls(step=checkpoint.step, **checkpoint.state | {"best_metrics": {}})',
        f"{GUARDS}::{BEST}",
    ),
    Guard(
        "patience is restored",
        "train/run_state.py",
        "cls(step=checkpoint.step, **checkpoint.state)",
        'cls(step=checkpoint.step, **checkpoint.state | {"evaluations_since_best": 0})',
        f"{GUARDS}::test_patience_is_counted_across_a_stop",
    ),
    Guard(
        "the best weights are restored",
        "train/trainer.py",
        'saved.tensors.get("best_model", {})',
        "{}",
        f"{GUARDS}::{BEST}",
    ),
    Guard(
        "the best weights are saved",
        "train/trainer.py",
        '{"best_model": self.best_weights} if self.best_weights else {}',
        "{}",
        f"{GUARDS}::{BEST}",
    ),
    Guard(
        "the average is restored",
        "train/step.py",
        'tables.get("average", {})',
        "{}",
        "train/test_average.py::test_a_run_stopped_anywhere_resumes_exactly",
    ),
    Guard(
        "the average is exported",
        "train/trainer.py",
        "        self.train_step.average.apply()\n",
        "        pass\n",
        "train/test_average.py::test_the_average_is_exported_and_the_last_figures_are_its_own",
    ),
    Guard(
        "other data is refused",
        "train/trainer.py",
        "        if state.data_fingerprint != self.feed.fingerprint:",
        "        if False:",
        f"{GUARDS}::test_a_run_is_not_resumed_with_other_data",
    ),
    Guard(
        "the optimizer is restored",
        "train/step.py",
        '        self.optimizer.load_state_dict(tables["optimizer"])\n',
        "",
        f"{GUARDS}::{ONCE}",
    ),
    Guard(
        "the position in the data is restored",
        "train/trainer.py",
        "        self.state = state\n",
        "        self.state = replace(state, position=self.feed.first_position())\n",
        f"{GUARDS}::{ONCE}",
    ),
    Guard(
        "ten bad steps in a row end a run",
        "train/trainer.py",
        "        if (most := self.step_metrics.most_skipped_in_a_row) >= MAX_SKIPPED_IN_A_ROW:",
        "        if False:",
        f"{TRAINER}::test_ten_bad_steps_in_a_row_end_the_run",
    ),
    Guard(
        "a bad step changes nothing",
        "train/optimizers.py",
        "        bad = ~torch.isfinite(norm)",
        "        bad = torch.isnan(norm) & False",
        f"{TRAINER}::test_a_step_with_a_non_finite_gradient_changes_nothing_and_is_counted",
    ),
    Guard(
        "being asked to stop saves",
        "train/trainer.py",
        "        self.save()\n        self.writer.wait()\n",
        "",
        "train/test_kills.py::test_a_signal_costs_at_most_one_step",
    ),
    Guard(
        "what is written in the background is a copy",
        "train/checkpoint_writer.py",
        'tensor.detach().to("cpu", copy=True)',
        'tensor.detach().to("cpu")',
        f"{WRITER}::test_training_changes_no_checkpoint_that_is_being_written",
    ),
    Guard(
        "one checkpoint waits for the one before",
        "train/checkpoint_writer.py",
        "        self.wait()\n        began = ",
        "        began = ",
        f"{WRITER}::test_a_save_waits_for_the_one_before",
    ),
    Guard(
        "a checkpoint that cannot be written stops the run",
        "train/trainer.py",
        '        if asked["failures"]:',
        "        if False:",
        f"{WRITER}::test_a_disk_that_fills_during_a_run_stops_it_at_the_next_step_and_costs_nothing",
    ),
    Guard(
        "a run ends after its last checkpoint is written",
        "train/checkpoint_writer.py",
        "        self._join()  #",
        "        pass  #",
        f"{WRITER}::test_a_run_that_fails_finishes_the_checkpoint_that_it_has_begun",
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
        "commands/pretrain.py",
        "        settle(recipe, MAY_CHANGE)\n",
        "",
        f"{TRAINER}::test_the_folder_of_another_recipe_is_refused",
    ),
    Guard(
        "word vectors do not go on with other text",
        "train/word2vec.py",
        '        if saved.state["data_fingerprint"] != self.text.fingerprint:',
        "        if False:",
        f"{VECTORS}::test_other_text_is_refused",
    ),
    Guard(
        "the log of word vectors is rewound",
        "train/word2vec.py",
        "        if damage := self.log.rewind(self.step):",
        '        if damage := "":',
        f"{VECTORS}::{VECTORS_STOPPED}",
    ),
    Guard(
        "the clock of word vectors goes on",
        "train/word2vec.py",
        'Clock(self.config.extent, training_seconds=saved.state["training_seconds"])',
        "Clock(self.config.extent)",
        f"{VECTORS}::{VECTORS_STOPPED}",
    ),
]

PREPARED = [
    Guard(
        "the index of shards is hashed",
        "data/shards/shards.py",
        '        self.check_file("index.json", files.digest)\n',
        "",
        f"{SHARDS}::test_every_flipped_bit_of_the_index_is_found_at_opening",
    ),
    Guard(
        "a manifest of shards names only shards",
        "data/shards/shards.py",
        r'        if not re.fullmatch(r"index\.json|\d{6}\.(tokens|sentences|documents)", name):',
        "        if False:",
        f"{SHARDS}::test_a_manifest_that_is_none_is_refused",
    ),
    Guard(
        "an index names only shards",
        "data/shards/shards.py",
        r're.fullmatch(r"\d{6}", shard["name"]) is not None',
        "True",
        f"{SHARDS}::test_an_index_that_does_not_fit_is_refused",
    ),
    Guard(
        "ends are in order",
        "data/shards/shards.py",
        "            if found[-1] != span or found[0] <= 0 or (found[1:] <= found[:-1]).any():",
        "            if False:",
        f"{SHARDS}::test_ends_out_of_order_are_found_at_opening",
    ),
    Guard(
        "the sizes of shards are those of the manifest",
        "data/shards/shards.py",
        "        if found.size != expected.size:",
        "        if False:",
        f"{SHARDS}::test_every_truncation_is_found_at_opening",
    ),
    Guard(
        "an uploaded file is hashed where it is",
        "data/shards/destination.py",
        "            if hash_pieces(target.pieces()) == digest:",
        "            if True:",
        f"{REMOTE}::test_a_file_that_arrives_damaged_is_sent_again",
    ),
    Guard(
        "a fetched file is hashed",
        "data/shards/cache.py",
        "    if found != expected:",
        "    if False:",
        f"{REMOTE}::test_a_half_fetched_copy_is_completed",
    ),
    Guard(
        "chunks in flight are bounded",
        "data/shards/cluster.py",
        "            while len(waiting) >= PREFETCH * self.processors:",
        "            while False:",
        f"{CLUSTER}::test_the_number_of_chunks_in_flight_is_bounded",
    ),
    Guard(
        "nodes have the same code",
        "data/shards/cluster.py",
        "    if version != code_version():",
        "    if False:",
        f"{CLUSTER}::test_a_node_with_other_code_is_refused",
    ),
    Guard(
        "shards are hashed",
        "data/shards/shards.py",
        "        if found.sha256 and found.sha256 != expected.sha256:",
        "        if False:",
        f"{SHARDS}::test_every_flipped_bit_is_found",
    ),
    Guard(
        "a token beyond the vocabulary is found",
        "data/shards/shards.py",
        "        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < self.vocabulary:",
        "        if False:",
        f"{VERIFICATION}::test_a_token_beyond_the_vocabulary_is_named_before_a_network_meets_it",
    ),
    Guard(
        "shards fit their tokenizer",
        "runs/build.py",
        "        shards.check_tokenizer(tokenizer.fingerprint)\n",
        "",
        f"{VERIFICATION}::test_text_of_another_tokenizer_is_refused_before_training",
    ),
    Guard(
        "little text is verified before the first step",
        "data/shards/verification.py",
        "    if running.bytes <= VERIFIED_AT_ONCE_BYTES:",
        "    if False:",
        f"{VERIFICATION}::test_a_flipped_bit_is_named_before_the_first_step",
    ),
    Guard(
        "a young file is not remembered",
        "data/shards/verification.py",
        " and time.time_ns() - before[3] > RECENT_NANOSECONDS:",
        ":",
        f"{VERIFICATION}::test_a_file_as_young_as_the_clock_of_the_disk_is_hashed_again",
    ),
    Guard(
        "damage stops training",
        "data/feed.py",
        "            self.verification.poll()\n",
        "            pass\n",
        f"{VERIFICATION}::test_training_stops_at_the_next_batch_after_damage_is_found",
    ),
    Guard(
        "a checkpoint waits for the verification",
        "train/trainer.py",
        "            self.feed.verify()\n            self._read_step_metrics",
        "            self._read_step_metrics",
        f"{VERIFICATION}::{DURING_STEPS}",
    ),
    Guard(
        "a model waits for the verification",
        "train/trainer.py",
        "            self.feed.verify()\n        self.log.close()",
        "        self.log.close()",
        f"{VERIFICATION}::test_a_run_that_saves_nothing_still_writes_no_model_of_damaged_text",
    ),
    Guard(
        "check verifies shards",
        "commands/check.py",
        "            verify(shards).wait()\n",
        "            pass\n",
        f"{VERIFICATION}::test_check_and_a_race_name_a_damaged_shard",
    ),
    Guard(
        "prepared text is verified",
        "data/shards/destination.py",
        "            verify(Shards(self.folder / name)).wait()\n",
        "            pass\n",
        f"{VERIFICATION}::test_prepare_and_make_name_a_damaged_shard_of_an_earlier_call",
    ),
    Guard(
        "text prepared in other ways is refused",
        "data/shards/prepare.py",
        '    if changed := differences(summary.pop("inputs", {}), inputs):',
        '    if changed := differences({}, {}) or summary.pop("inputs", {}) and "":',
        f"{PREPARE}::test_a_finished_folder_is_not_filled_with_something_else",
    ),
    Guard(
        "preparing goes on only as it was begun",
        "data/shards/journal.py",
        'if self.entries and (changed := differences(journal["inputs"], inputs)):',
        "if changed := '':",
        f"{PREPARE}::test_an_unfinished_folder_is_not_gone_on_with_by_something_else",
    ),
    Guard(
        "a shard that was left is as it was left",
        "data/shards/writer.py",
        '            if self._destination.size(path) != digest["size"]:',
        "            if False:",
        f"{SHARDS}::test_an_uncut_shard_is_cleared_away_and_a_cut_one_kept",
    ),
    Guard(
        "the beginning of a shard is cleared away",
        "data/shards/writer.py",
        "                    path.unlink()  #",
        "                    pass  #",
        f"{SHARDS}::test_an_uncut_shard_is_cleared_away_and_a_cut_one_kept",
    ),
]

LIMITED = [
    Guard(
        "no name leads out of a model folder",
        "files.py",
        "    if not inside:",
        "    if False:",
        f"{REFUSALS}::test_an_index_cannot_lead_out_of_its_folder",
    ),
    Guard(
        "a name that cannot be printed is refused",
        "files.py",
        " and (name + subfolder).isprintable()",
        "",
        "house/test_names.py::test_no_generated_name_leads_out_of_its_folder",
    ),
    Guard(
        "a configuration is small",
        "files.py",
        "    if path.stat().st_size > max_bytes:",
        "    if False:",
        f"{REFUSALS}::test_an_endless_configuration_is_refused",
    ),
    Guard(
        "a damaged file of a model folder is found by its hash",
        "models/hf/manifest.py",
        "    if files.digest(path).sha256 != sha256:",
        "    if False:",
        "models/test_manifest.py::test_every_flipped_bit_is_found_and_named",
    ),
    Guard(
        "a model folder is checked before it is read",
        "models/hf/folder.py",
        "    manifest.verify(folder)\n",
        "",
        "models/test_manifest.py::test_every_flipped_bit_is_found_and_named",
    ),
    Guard(
        "a tokenizer file leads to no other folder",
        "text/folder.py",
        "            return file_inside(path, name)",
        "            return path / name",
        "text/test_limits.py::test_a_link_cannot_lead_out_of_its_folder",
    ),
    Guard(
        "settings of a tokenizer lead to no other folder",
        "text/folder.py",
        "check_size(file_inside(folder, name), MAX_JSON_BYTES)",
        "check_size(folder / name, MAX_JSON_BYTES)",
        "text/test_limits.py::test_a_link_cannot_lead_out_of_its_folder",
    ),
    Guard(
        "rules of a tokenizer make no text far longer",
        "text/limits.py",
        "        if grown > MAX_GROWTH:",
        "        if False:",
        "text/test_limits.py::test_rules_that_grow_are_refused_at_once",
    ),
    Guard(
        "layers are as many as weights",
        "models/hf/folder.py",
        " > len(stored) or layers > MAX_LAYERS",
        " > 1 << 60",
        f"{REFUSALS}::test_a_configuration_that_names_huge_sizes_costs_nothing",
    ),
    Guard(
        "nothing is unpickled",
        "data/shards/shards.py",
        'ENDS_DTYPE = np.dtype("<i8")\n',
        'ENDS_DTYPE = np.dtype("<i8")\n\n\ndef _any(path: Path) -> Any:\n    return np.load(path, allow_pickle=True)\n',
        f"{LINT}::test_no_file_unpickles_or_evaluates",
    ),
    Guard(
        "tokenizer files are put in place at once",
        "text/folder.py",
        '    partial = file.with_name(file.name + ".writing")',
        "    partial = file",
        f"{GUARDS}::test_a_tokenizer_is_written_atomically",
    ),
]

SERVING = "serving/test_limits.py"
SERVED = [
    Guard(
        "a key is compared as a whole",
        "serving/application.py",
        " or not same:",
        ":",
        f"{SERVING}::test_every_route_but_health_wants_the_key",
    ),
    Guard(
        "a declared body above the limit is not read",
        "serving/application.py",
        " or int(declared) > limits.body_bytes:",
        ":",
        f"{SERVING}::test_an_upload_that_waits_for_permission_gets_none",
    ),
    Guard(
        "an undeclared body is read up to the limit",
        "serving/application.py",
        "                    if size > limits.body_bytes:",
        "                    if False:",
        f"{SERVING}::test_a_large_upload_gets_its_answer_and_an_end[chunked]",
    ),
    Guard(
        "a page of another site cannot use the server",
        "serving/application.py",
        "        check_origin(headers)\n",
        "",
        f"{SERVING}::test_a_page_of_another_site_is_refused",
    ),
    Guard(
        "the queue is bounded",
        "serving/served.py",
        "        if self.is_full(work):",
        "        if False:",
        f"{SERVING}::test_a_full_queue_refuses_at_once_and_recovers",
    ),
    Guard(
        "the tokens of a request are bounded",
        "serving/served.py",
        "        if tokens > self.limits.request_tokens:",
        "        if False:",
        f"{SERVING}::test_too_much_is_refused",
    ),
    Guard(
        "headers have a deadline",
        "serving/protocol.py",
        "            self._reading, self._header_bytes = True, 0\n            self._expect(self.limits.header_seconds)",
        "            self._reading, self._header_bytes = True, 0\n            self._expect(None)",
        f"{SERVING}::test_a_slow_connection_is_closed",
    ),
    Guard(
        "a body has a deadline",
        "serving/protocol.py",
        "            self.cycle.keep_alive = False\n        self._expect(self.limits.body_seconds + LATE_SECONDS)",
        "            self.cycle.keep_alive = False\n        self._expect(None)",
        f"{SERVING}::test_a_slow_connection_is_closed",
    ),
    Guard(
        "headers are bounded",
        "serving/protocol.py",
        "        if self._reading and self._header_bytes > MAX_HEADER_BYTES:",
        "        if False:",
        f"{SERVING}::test_endless_headers_are_refused",
    ),
    Guard(
        "connections are bounded",
        "serving/protocol.py",
        "        if len(self.connections) > self.limits.connections:",
        "        if False:",
        f"{SERVING}::test_there_are_no_more_connections_than_the_limit",
    ),
    Guard(
        "a wrong input does not harm its neighbours",
        "serving/model_process.py",
        "                    self._finish(self._start([waiting]))",
        "                    waiting.connection.send(_failed(waiting.job.id, error))",
        "serving/test_texts.py::test_a_wrong_input_does_not_harm_its_neighbours",
    ),
    Guard(
        "an answer about a mistake is one line",
        "serving/request_error.py",
        '    return escape_control(" ".join(part.split()))',
        "    return part",
        "serving/test_mistakes.py::test_no_mistake_is_a_fault",
    ),
    Guard(
        "a public address needs a key",
        "commands/serve.py",
        "    return all(ipaddress.ip_address(one[4][0]).is_loopback for one in found)",
        "    return True",
        "commands/test_serve.py::test_addresses_of_this_machine_alone_are_known",
    ),
]

TABLE = [*DURABLE, *SAVED, *LOGGED, *LOCKED, *RESUMED, *PREPARED, *LIMITED, *SERVED]
