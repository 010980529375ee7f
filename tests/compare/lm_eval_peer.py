"""What lm-eval makes of the answers on stdin: a JSON list of items, each with `task`, `filter` (of IFEval: `strict` or `loose`), `doc` and
`answer`. Prints a list of grades, true or false. Filters, gold answers and metrics are those of lm-eval's task files."""

import json
import pathlib
import sys
import types

import jinja2
import yaml
import lm_eval

# Importing the package of all tasks would import what runs models.
TASKS = pathlib.Path(lm_eval.__file__).parent / "tasks"
package = types.ModuleType("lm_eval.tasks")
package.__path__ = [str(TASKS)]
sys.modules["lm_eval.tasks"] = package

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import exact_match_fn
from lm_eval.filters import build_filter_ensemble
from lm_eval.tasks.ifeval import instructions, utils

# We do not detect languages, so every answer counts as English here.
instructions.langdetect.detect = lambda text: "en"

FILES = {
    "gsm8k": "gsm8k/gsm8k.yaml",
    "mmlu_generative": "mmlu/generative/_default_template_yaml",
    "mmlu_flan_cot_zeroshot": "mmlu/flan_cot_zeroshot/_mmlu_flan_cot_zeroshot_template_yaml",
    "gpqa_cot_zeroshot": "gpqa/cot_zeroshot/_gpqa_cot_zeroshot_yaml",
}


class Loader(yaml.SafeLoader):
    """Leaves out the functions of task files, which prepare data sets."""


Loader.add_multi_constructor("!function", lambda loader, suffix, node: None)


def gold(template, doc):
    if template in doc:
        return doc[template]
    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True).from_string(template).render(**doc)


def grades_of_task(name, filter_name, items):
    task = yaml.load((TASKS / FILES[name]).read_text(), Loader)
    steps = next(each["filter"] for each in task["filter_list"] if each["name"] == filter_name)
    steps = [[step["function"], {key: value for key, value in step.items() if key != "function"}] for step in steps]
    instances = [Instance("generate_until", item["doc"], ("", {}), at, resps=[item["answer"]]) for at, item in enumerate(items)]
    build_filter_ensemble(filter_name, steps).apply(instances)
    (metric,) = task["metric_list"]
    options = {key: value for key, value in metric.items() if key not in ("metric", "aggregation", "higher_is_better")}
    assert metric["metric"] == "exact_match"
    return [
        exact_match_fn(
            references=[gold(task["doc_to_target"], item["doc"])], predictions=[instance.filtered_resps[filter_name]], **options
        )["exact_match"]
        == 1
        for instance, item in zip(instances, items)
    ]


def grades_of_ifeval(reading, items):
    return [utils.process_results(item["doc"], [item["answer"]])[f"prompt_level_{reading}_acc"] for item in items]


def grades(items):
    batches = {}
    for at, item in enumerate(items):
        batches.setdefault((item["task"], item["filter"]), []).append(at)
    found = [None] * len(items)
    for (task, filter_name), places in batches.items():
        batch = [items[at] for at in places]
        found_here = grades_of_ifeval(filter_name, batch) if task == "ifeval" else grades_of_task(task, filter_name, batch)
        for at, grade in zip(places, found_here):
            found[at] = bool(grade)
    return found


json.dump(grades(json.load(sys.stdin)), sys.stdout)
