# SPDX-License-Identifier: Apache-2.0
"""Operators whose gradient is written in other operators of the standard, for run.py: a row a case, `OPERATORS[name] = Row`. A model is told no size that differs
between its runs."""
from dataclasses import dataclass, field

import numpy as np

# The types for which ONNX Runtime has the operator and those of its gradient. (Its DFT of f64 turns by angles of f32.)
BOTH, SINGLE, NEITHER = "fd", "f", ""


@dataclass
class Row:
    node: str  # "OPERATOR INPUT ...": "-" is left out
    feeds: list  # of each run {input: a shape, or its numbers}
    attributes: dict = field(default_factory=dict)
    runtime: str = BOTH
    types: str = BOTH  # for which our own kernels compute in the type itself
    of: str = ""  # inputs of floats that are differentiated by; "": all
    constants: dict = field(default_factory=dict)  # inputs that the model has
    opset: int = 22
    results: int = 1


def ints(*values):
    return np.array(values, np.int64)


SAMPLES = [dict(x=(2, 3, 5, 4), grid=(2, 3, 6, 2)), dict(x=(1, 1, 1, 1), grid=(1, 2, 1, 2)), dict(x=(2, 2, 1, 7), grid=(2, 0, 3, 2)), dict(x=(1, 0, 4, 3), grid=(1, 2, 2, 2))]
VOLUMES = [dict(x=(2, 2, 3, 4, 5), grid=(2, 2, 1, 3, 3)), dict(x=(1, 1, 1, 2, 1), grid=(1, 1, 2, 2, 3))]
LINES = [dict(x=(2, 3, 6), grid=(2, 4, 1)), dict(x=(1, 2, 1), grid=(1, 3, 1))]
REGIONS = np.array([[0.2, 0.4, 5.3, 4.1], [1.1, -1.7, 9.6, 2.8], [-3.2, 0.3, -1.1, 2.2], [2.3, 2.6, 2.9, 3.3]])
ALIGNED = [dict(x=(2, 3, 6, 7), rois=REGIONS, images=ints(1, 0, 0, 1)), dict(x=(1, 2, 1, 1), rois=REGIONS[:1], images=ints(0)),
           dict(x=(2, 1, 4, 3), rois=REGIONS[:0], images=ints())]
DEFORMED = [dict(x=(2, 4, 5, 6), w=(4, 2, 3, 2), offset=(2, 24, 5, 3), mask=(2, 12, 5, 3), b=(4,)), dict(x=(1, 4, 2, 1), w=(2, 2, 3, 2), offset=(1, 24, 2, 1), mask=(1, 12, 2, 1), b=(2,))]
# Of crops ONNX Runtime rounds scaled sizes before it reckons places, and leaves out axes whose size stays.
RESIZED = [dict(x=(2, 3, 4, 6)), dict(x=(1, 2, 8, 9)), dict(x=(0, 1, 1, 9)), dict(x=(1, 1, 1, 9))]

OPERATORS = {
    **{f"grid_{mode}_{padding}_{align}": Row("GridSample x grid", SAMPLES, dict(mode=mode, padding_mode=padding, align_corners=align))
       for mode in ("linear", "nearest", "cubic") for padding in ("zeros", "border", "reflection") for align in (0, 1)},
    "grid_16": Row("GridSample x grid", SAMPLES[:1], dict(mode="bicubic", padding_mode="reflection"), SINGLE, opset=16),
    "grid_line": Row("GridSample x grid", LINES, dict(mode="linear", padding_mode="border"), NEITHER),
    "grid_volume": Row("GridSample x grid", VOLUMES, dict(mode="linear", padding_mode="reflection")),
    "grid_volume_nearest": Row("GridSample x grid", VOLUMES, dict(mode="nearest", align_corners=1)),
    **{f"roi_{mode}_{sampling}_{shift}": Row("RoiAlign x rois images", ALIGNED, dict(mode=mode, output_height=3, output_width=2, sampling_ratio=sampling,
                                                                                    spatial_scale=0.8, coordinate_transformation_mode=shift), of="x", opset=21)
       for mode in ("avg", "max") for sampling in (0, 2) for shift in ("half_pixel", "output_half_pixel")},
    **{f"dft_{inverse}_{onesided}_{axis}_{length}": Row(f"DFT x {'n' if length else '-'} axis", [dict(x=(2, 5, 6, parts)), dict(x=(1, 2, 2, parts)), dict(x=(1, 1, 1, parts))],
                                                        dict(inverse=inverse, onesided=onesided), SINGLE, constants=dict(axis=ints(axis).reshape(()), n=ints(length).reshape(())))
       for inverse, onesided, parts in ((0, 0, 1), (0, 0, 2), (1, 0, 2), (0, 1, 1)) for axis in (1, -2) for length in (0, 4, 9)},
    "dft_back_to_real": Row("DFT x n axis", [dict(x=(2, 5, 2)), dict(x=(1, 3, 2))], dict(inverse=1, onesided=1), NEITHER, constants=dict(axis=ints(1).reshape(()), n=ints(8).reshape(()))),
    "dft_17": Row("DFT x", [dict(x=(2, 5, 3, 2))], dict(axis=2), SINGLE, opset=17),
    **{f"stft_{onesided}_{parts}": Row("STFT x step window", [dict(x=(2, 17, parts), window=(6,)), dict(x=(1, 6, parts), window=(6,))], dict(onesided=onesided), SINGLE,
                                       constants=dict(step=ints(3).reshape(()))) for onesided, parts in ((0, 1), (0, 2), (1, 1))},
    "stft_plain": Row("STFT x step - n", [dict(x=(2, 9, 1)), dict(x=(0, 9, 1))], dict(onesided=1), SINGLE, constants=dict(step=ints(2).reshape(()), n=ints(5).reshape(()))),
    **{f"columns_{name}": Row("Col2Im x image block", [dict(x=shape) for shape in shapes], attributes, SINGLE, constants=dict(image=ints(*image), block=ints(*block)))
       for name, shapes, image, block, attributes in (
           ("plain", [(2, 12, 12), (1, 6, 12)], (5, 4), (2, 3), dict(strides=[1, 1], pads=[0, 0, 0, 1])),
           ("apart", [(2, 8, 6), (0, 4, 6)], (5, 6), (2, 2), dict(strides=[2, 2], dilations=[2, 1], pads=[1, 0, 0, 0])),
           ("line", [(1, 6, 4)], (8,), (3,), dict(strides=[2], pads=[0, 1])), ("volume", [(1, 8, 6)], (3, 4, 2), (2, 2, 1), dict(pads=[0, 0, 0, 0, 0, 0], strides=[1, 1, 2])))},
    **{f"lp_{name}": Row("LpPool x", [dict(x=shape) for shape in shapes], attributes, SINGLE) for name, shapes, attributes in (
        ("overlap", [(2, 3, 7, 6), (1, 1, 3, 2)], dict(kernel_shape=[3, 2], strides=[2, 1], p=3)), ("sum", [(2, 3, 8), (0, 1, 5)], dict(kernel_shape=[3], p=1)),
        ("padded", [(2, 1, 5, 6), (2, 1, 5, 6)], dict(kernel_shape=[3, 3], pads=[1, 0, 1, 2], p=2)), ("apart", [(1, 2, 7, 9), (1, 2, 5, 3)], dict(kernel_shape=[2, 2], dilations=[2, 1])),
        ("ceil", [(1, 2, 6, 7)], dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)))},
    **{f"average_{name}": Row("AveragePool x", [dict(x=(2, 3, 7, 6)), dict(x=(1, 1, 4, 9))], attributes, SINGLE) for name, attributes in (
        ("padded", dict(kernel_shape=[3, 2], pads=[1, 0, 1, 1])), ("whole", dict(kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1, dilations=[1, 2])),
        ("ceil", dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=[0, 1, 0, 0], count_include_pad=1)), ("apart", dict(kernel_shape=[3, 2], dilations=[2, 3], pads=[2, 1, 1, 1])),
        ("same", dict(kernel_shape=[3, 4], strides=[2, 3], auto_pad="SAME_LOWER")))},
    **{f"{name}_same": Row(f"{name} x", [dict(x=(2, 3, 7, 6)), dict(x=(1, 1, 4, 9))], dict(kernel_shape=[3, 4], strides=[2, 3], auto_pad="SAME_UPPER"), SINGLE)
       for name in ("MaxPool", "LpPool")},
    **{f"resize_{name}": Row(f"Resize x {by}", RESIZED, attributes, SINGLE,
                             constants=dict(roi=np.array([0.2, -0.1, 0.7, 1.2]), roi3=np.array([0.3, 0.8]), sizes=ints(5, 7), size=ints(4), scales=np.array([2, 0.5], np.float32)), opset=19)
       for name, by, attributes in (
           ("crop", "roi - sizes", dict(mode="linear", coordinate_transformation_mode="tf_crop_and_resize", axes=[2, 3], extrapolation_value=3.0)),
           ("crop_cubic", "roi scales", dict(mode="cubic", coordinate_transformation_mode="tf_crop_and_resize", axes=[3, 2])),
           ("crop_nearest", "roi3 - size", dict(mode="nearest", coordinate_transformation_mode="tf_crop_and_resize", axes=[3])),
           *((f"{policy}_{mode}", "- - sizes", dict(mode=mode, keep_aspect_ratio_policy=policy, axes=axes, **more)) for policy in ("not_larger", "not_smaller")
             for mode, axes, more in (("linear", [2, 3], {}), ("nearest", [3, 2], {}), ("cubic", [2, 3], dict(exclude_outside=1)))),
           ("one_axis", "- - size", dict(mode="linear", keep_aspect_ratio_policy="not_larger", axes=[3], antialias=1)))},
    **{f"linear_attention_{rule}": Row(f"LinearAttention q k v {inputs}", [
        dict(q=(2, time, 12), k=(2, time, 6), v=(2, time, 4), s=(2, 2, 3, 2), d=(2, time, decays), b=(2, time, betas)) for time in (4, 1)],
        dict(update_rule=rule, q_num_heads=4, kv_num_heads=2, scale=scale), NEITHER, "f", opset=27, results=2)
       for rule, inputs, decays, betas, scale in (("linear", "", 2, 2, 0.0), ("gated", "s d", 2, 2, 0.7), ("delta", "- - b", 2, 1, 0.0), ("gated_delta", "s d b", 6, 2, 0.0))},
    "det": Row("Det x", [dict(x=(2, 3, 4, 4)), dict(x=(1, 1, 1, 1)), dict(x=(0, 2, 3, 3)), dict(x=np.ones((1, 2, 2, 2)))], {}, SINGLE),
    "deform": Row("DeformConv x w offset b mask", DEFORMED, dict(group=2, offset_group=2, pads=[1, 0, 1, 1], strides=[1, 2], kernel_shape=[3, 2]), SINGLE),
}
