"""Runs: the parts that commands are put together from.

build         tokenizer, network with heads and feed of a pretraining run
task_recipe   the settings of a fine-tuning run, as far as they are not given, guessed from the data
finetuning    one fine-tuning run after the other, one for each seed
task_data     files, examples, classes and items of a fine-tuning run
autoconfig    the recipe that suits a text, a machine and a time, with reasons
warm_start    a run that continues from a model folder
summary       the figures, examples and facts of a finished run
suites        whole benchmarks in one command
race_metrics  the scores that a race compares models by
"""
