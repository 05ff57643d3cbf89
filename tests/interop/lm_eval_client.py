#!/usr/bin/env python3
"""Runs lm-eval's API mode against `tilewright serve`: it compares continuations by their log probabilities.

Usage: lm_eval_client.py TILEWRIGHT MODELS, the program and the folder of the shipped models.
"""

import json
import pathlib
import sys
import tempfile

import lm_eval
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

from serving import serving

# The model was trained on the King James Bible: the first continuation is its own.
QUESTIONS = [
    ("In the beginning God created the heaven and the", [" earth", " xylophone"]),
    ("And God said, Let there be", [" light", " quux"]),
    ("And the LORD spake unto", [" Moses", " zq"]),
]
TASK = """task: kjv
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
"""


def main():
    program, model = sys.argv[1], pathlib.Path(sys.argv[2]).resolve() / "tiny-llama"
    with serving(program, model) as address, tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data.jsonl"
        lines = [{"question": text, "choices": choices, "answer": 0} for text, choices in QUESTIONS]
        data.write_text("\n".join(map(json.dumps, lines)))
        (pathlib.Path(folder) / "kjv.yaml").write_text(TASK.format(data=data))
        served = LocalCompletionsAPI(
            base_url=address + "/v1/completions", model="tiny-llama", tokenizer=str(model), max_length=512
        )
        tasks = TaskManager(include_path=folder)
        result = lm_eval.simple_evaluate(model=served, tasks=["kjv"], task_manager=tasks, bootstrap_iters=0)
    accuracy = result["results"]["kjv"]["acc,none"]
    assert accuracy == 1.0, result["results"]
    print("lm-eval: accuracy", accuracy)


main()
