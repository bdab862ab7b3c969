"""Checkpoints whose layers are quantized in several forms, and what an engine must serve of them: torch and safetensors alone.

Which layer has which form is said in `forms`: what the layer's name contains -> a form of quantized_forms.FORMS; the first one counts,
and what none of them is, is in full precision."""

import contextlib
import json

import safetensors.torch

import oracle
import quantized_checkpoints
import quantized_forms
from quantized_forms import FORMS


def _form_of(forms, module):
    return next((FORMS[form] for part, form in forms.items() if part in module), None)


def make(source, folder, forms, config):
    """The checkpoint `source`, its layers in `forms`, in `folder`. config: its quantization_config."""
    folder.mkdir(parents=True)
    tensors, weights = {}, oracle.read_tensors(source)
    largest = quantized_forms.largest_of(weights)
    for name, tensor in weights.items():
        module = name.removesuffix(".weight")
        form = _form_of(forms, module)
        if not module.endswith(quantized_forms.LINEAR) or form is None or name == module:
            tensors[name] = tensor
            continue
        coded = quantized_forms.quantized(form, tensor, largest)
        tensors |= {f"{module}.{suffix}": value for suffix, value in coded.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    write_config(source, folder, config)
    return folder


def write_config(source, folder, config):
    (folder / "config.json").write_text(json.dumps({**oracle.read_config(source), "quantization_config": config}))


class _Served(quantized_checkpoints.Served):
    """Each layer in its form. Under the recipe "checkpoint" what comes in full precision gets the form's recipe."""

    forms = {}

    @contextlib.contextmanager
    def in_form_of(self, module):
        recipe, self.form = self.recipe, _form_of(self.forms, module)
        if recipe == "checkpoint":
            self.recipe = "none" if self.form is None else self.form.recipe
        is_coded = self.source[f"{module}.weight"].dtype in quantized_forms.CODES
        yield super() if is_coded or self.form is None else super(quantized_checkpoints.Served, self)
        self.recipe = recipe

    def column(self, module, parts):
        with self.in_form_of(parts[0][0]) as served:
            served.column(module, parts)

    def row(self, module):
        with self.in_form_of(module) as served:
            served.row(module)


def served_tensors(folder, forms, tp_size, rank, recipe):
    served = quantized_checkpoints.of_rank(oracle.read_tensors(folder), oracle.read_config(folder), tp_size, rank, recipe, _Served)
    served.forms = forms
    return served.model()
