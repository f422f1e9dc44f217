"""Runs: the parts that commands are composed of.

build              tokenizer, network with heads and feed of a pretraining run
autoconfig         the recipe that `make` chooses for a text, a machine and a time budget, with reasons
candidates         the recipes among which it chooses: every size of smith, or of the member asked for
pace               tokens per second of a recipe on this machine, measured by a few updates
warm_start         continued pretraining: initialising a run from a model folder
more_time          what twice the time would bring, by estimate
yardsticks         how well the validation text is guessed by counting tokens
verdict            whether a model has learnt, and how far it can be used
overview           what a person wants to know of a model: its text, accuracy, uses and limits
next_commands      the next commands after a model is made
summary            the metrics, examples, verdict and overview of a pretraining run, for terminal, report and model card
task_recipe        the recipe of a fine-tuning run; settings that are not given are guessed from the data
task_data          files, examples, labels and items of a fine-tuning run
finetuning         fine-tuning, one run per seed
finetuning_result  metrics of all seeds with confidence intervals
finetuning_export  the fine-tuned model as a Hugging Face folder
inference_output   inputs and resumable output files of predict, embed and score
suites             benchmarks: GLUE, features by layer, BLiMP, probes, few-shot
race_metrics       the metrics by which a race compares models
"""
