#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports networks of timm, torchvision and transformers from PyTorch, each as an ONNX backend test.

    exported_models.py OUT_DIR [NAME ...]     (pip install torch torchvision timm transformers onnx onnxscript)
    exported_models.py --list                 names, one a line

OUT_DIR/NAME.EXPORTER/model.onnx with test_data_set_0/{input,output}_J.pb, as `onnxfuse test` and bench/peers.py take them; the outputs are
PyTorch's. EXPORTER is script (torch.onnx.export with dynamo=False) or dynamo; what one of them cannot export is told and left out. Weights are
random, of the sizes that the packages give, but for language models, which are small here; statistics of BatchNormalization are drawn, so that
they do something. --exporters names one of the two."""
import argparse
import json
import logging
import pathlib
import shutil
import warnings

IMAGES = {  # of timm: the side of the picture
    "beit_base_patch16_224": 224, "coat_lite_tiny": 224, "convmixer_768_32": 224, "convnext_tiny": 224, "crossvit_9_240": 240, "deit_tiny_patch16_224": 224,
    "densenet121": 224, "dla34": 224, "edgenext_small": 256, "efficientformerv2_s0": 224, "efficientnet_b0": 224, "eva02_tiny_patch14_224": 224,
    "fastvit_t8": 256, "ghostnet_100": 224, "hrnet_w18_small": 224, "inception_v3": 299, "levit_128s": 224, "maxvit_nano_rw_256": 256, "mixer_s32_224": 224,
    "mobilenetv4_conv_small": 224, "mobilevit_s": 256, "nfnet_l0": 224, "poolformer_s12": 224, "pvt_v2_b0": 224, "regnety_004": 224, "repvgg_a0": 224,
    "resnest14d": 224, "swin_tiny_patch4_window7_224": 224, "tinynet_a": 192, "vgg11": 224, "volo_d1_224": 224, "xcit_nano_12_p16_224": 224,
}
VISION = {  # of torchvision: its function, arguments, the input's shape, which part of the result
    "shufflenet_v2": ("shufflenet_v2_x1_0", {}, [1, 3, 224, 224], None),
    "squeezenet": ("squeezenet1_1", {}, [1, 3, 224, 224], None),
    "googlenet": ("googlenet", {"init_weights": False, "aux_logits": False}, [1, 3, 224, 224], None),
    "deeplabv3": ("segmentation.deeplabv3_mobilenet_v3_large", {"weights_backbone": None}, [1, 3, 224, 224], "out"),
    "lraspp": ("segmentation.lraspp_mobilenet_v3_large", {"weights_backbone": None}, [1, 3, 224, 224], "out"),
    "r2plus1d": ("video.r2plus1d_18", {}, [1, 3, 8, 112, 112], None),
}
TINY = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 1024}
TWO_PARTS = {"vocab_size": 1000, "d_model": 256, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
             "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024}
PICTURE = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
NETS = {  # of transformers: model, its configuration, the inputs: a list is a tensor's shape, a number so many tokens; which of the results
    "albert": ("AlbertModel", {**TINY, "hidden_size": 312, "num_attention_heads": 12}, {"input_ids": 64}, 1),
    "bart": ("BartModel", {**TWO_PARTS, "pad_token_id": 1}, {"input_ids": 48, "decoder_input_ids": 20}, 1),
    "bigbird": ("BigBirdModel", {**TINY, "attention_type": "original_full"}, {"input_ids": 64}, 1),
    "deberta": ("DebertaV2Model", {**TINY, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 64}, {"input_ids": 64}, 1),
    "encodec": ("EncodecModel", {"num_filters": 8, "hidden_size": 32, "codebook_size": 64, "codebook_dim": 32}, {"input_values": [1, 1, 4800]}, "decoded"),
    "fnet": ("FNetModel", {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3, "intermediate_size": 1024}, {"input_ids": 32}, 1),
    "gemma2": ("Gemma2ForCausalLM", {**TINY, "num_key_value_heads": 2, "head_dim": 64}, {"input_ids": 64}, 1),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 1000, "n_layer": 4}, {"input_ids": 64}, 1),
    "gpt_neox": ("GPTNeoXModel", TINY, {"input_ids": 64}, 1),
    "hubert": ("HubertModel", {k: v for k, v in TINY.items() if k != "vocab_size"}, {"input_values": [1, 16000]}, 1),
    "mamba": ("MambaModel", {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3}, {"input_ids": 32}, 1),
    "mpnet": ("MPNetModel", TINY, {"input_ids": 64}, 1),
    "phi3": ("Phi3ForCausalLM", {**TINY, "num_key_value_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}, {"input_ids": 64}, 1),
    "qwen2": ("Qwen2ForCausalLM", {**TINY, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2}, {"input_ids": 64}, 1),
    "roberta": ("RobertaModel", TINY, {"input_ids": 64}, 1),
    "segformer": ("SegformerForSemanticSegmentation", {"num_labels": 21}, {"pixel_values": [1, 3, 128, 128]}, 1),
    "t5": ("T5Model", {"vocab_size": 1000, "num_layers": 4, "d_model": 256, "d_kv": 64, "num_heads": 4, "d_ff": 1024}, {"input_ids": 48, "decoder_input_ids": 20}, 1),
    "wav2vec2": ("Wav2Vec2Model", {k: v for k, v in TINY.items() if k != "vocab_size"}, {"input_values": [1, 16000]}, 1),
    "whisper": ("WhisperModel", {**TWO_PARTS, "pad_token_id": 0}, {"input_features": [1, 80, 3000], "decoder_input_ids": 20}, 1),
    "xlnet": ("XLNetModel", {"vocab_size": 1000, "d_model": 256, "n_layer": 3, "n_head": 4, "d_inner": 1024}, {"input_ids": 32}, 1),
    "yolos": ("YolosForObjectDetection", {**PICTURE, "image_size": [224, 224], "num_detection_tokens": 20, "num_labels": 20}, {"pixel_values": [1, 3, 224, 224]}, 2),
}


def made(name):
    """A module, and its inputs by their names."""
    import torch

    class Part(torch.nn.Module):
        """Takes its inputs in order; gives the tensors that are wanted of the result."""

        def __init__(self, module, names, part):
            super().__init__()
            self.module, self.names, self.part = module, names, part

        def forward(self, *given):
            if self.part == "decoded":
                return self.module.decoder(self.module.encoder(given[0]))
            result = self.module(**dict(zip(self.names, given)), **({"use_cache": False} if "input_ids" in self.names and hasattr(self.module.config, "use_cache") else {}))
            return tuple(result[k] for k in range(self.part))

    torch.manual_seed(0)
    if name in IMAGES:
        import timm

        return timm.create_model(name, pretrained=False).eval(), {"x": torch.randn(1, 3, IMAGES[name], IMAGES[name])}
    if name in VISION:
        import torchvision

        path, arguments, shape, key = VISION[name]
        function = torchvision.models
        for step in path.split("."):
            function = getattr(function, step)
        module = function(weights=None, **arguments).eval()
        if key:
            inner = module

            class Keyed(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = inner

                def forward(self, x):
                    return self.inner(x)[key]

            module = Keyed()
        return module, {"x": torch.randn(shape)}
    import transformers

    kind, numbers, wanted, part = NETS[name]
    kind = getattr(transformers, kind)
    config = kind.config_class(**numbers)
    config._attn_implementation = "eager"
    inputs = {n: torch.randint(0, 1000, (1, s)) if isinstance(s, int) else torch.randn(s) for n, s in wanted.items()}
    return Part(kind(config).eval(), list(inputs), part), inputs


def write(folder, name, exporter):
    import onnx
    import torch
    from onnx import numpy_helper

    module, inputs = made(name)
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    path, given = folder / "model.onnx", tuple(inputs.values())
    with torch.no_grad():
        results = module(*given)
        more = {"dynamo": True, "verbose": False, "external_data": False} if exporter == "dynamo" else {"dynamo": False, "opset_version": 17}
        torch.onnx.export(module, given, str(path), input_names=list(inputs), **more)
    results = results if isinstance(results, tuple) else (results,)
    (folder / "data.json").write_text(json.dumps({"atol": 2e-5, "rtol": 1e-3}))  # near zero float32 is off by sums of larger numbers
    for what, tensors in (("input", given), ("output", results)):
        for position, tensor in enumerate(tensors):
            (data / f"{what}_{position}.pb").write_bytes(numpy_helper.from_array(tensor.detach().numpy()).SerializeToString())
    if len(onnx.load(path, load_external_data=False).graph.output) != len(results):
        raise ValueError("the exporter has added outputs")


def main():
    names = [*IMAGES, *VISION, *NETS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--exporters", default="script,dynamo")
    options = parser.parse_args()
    if options.list:
        print("\n".join(names))
        return
    if not options.out or set(options.names) - set(names):
        parser.error("a folder is needed, and names that --list knows")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    for name in options.names or names:
        for exporter in options.exporters.split(","):
            folder = options.out / f"{name}.{exporter}"
            if folder.exists():
                continue
            try:
                write(folder, name, exporter)
                print("ok   ", folder, flush=True)
            except Exception as error:  # whatever an exporter comes to
                shutil.rmtree(folder, ignore_errors=True)
                print(f"left out: {folder.name}: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:150]}", flush=True)


if __name__ == "__main__":
    main()
