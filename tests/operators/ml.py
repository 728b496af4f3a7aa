# SPDX-License-Identifier: Apache-2.0
"""Cases of ai.onnx.ml: against ONNX Runtime; where it does what the standard does not say, against the onnx package's evaluator."""

from dataclasses import replace

import numpy as np
from onnx import numpy_helper

from cases import ML, by_onnxruntime, by_reference, data, drawn, entries, f, f32, f64, given_as, i, i32, i64, row, table
from formulas import POST
from trees import MODES, ensemble, grow, lists, samples, summed

POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
V1, V2, V3, V4, V5 = ({"domain": ML, "version": version} for version in range(1, 6))
TEXT = np.array(["a", "b", "c", "longer", ""], object)


def floats(seed, count, low=-1.0, high=1.0):
    """Numbers for an attribute."""
    return [float(x) for x in np.random.default_rng(seed).uniform(low, high, count).astype(np.float32)]


def words(*shape):
    return drawn(lambda rng: rng.choice(TEXT, shape).astype(object))


def tensor(values, dtype=None):
    return numpy_helper.from_array(np.array(values, dtype))


# --- features ---------------------------------------------------------------------------------------------------------
FEATURES = [
    *table("ArrayFeatureExtractor",
           row("columns", [f(3, 5), data([4, 0, 0], i64)]), row("one column", [f(3, 5), data([2], i64)]), row("a vector", [f(5), data([1, 3], i64)]),
           row("three axes", [f(2, 3, 5), data([1, 3], i64)]), row("integers", [i(3, 5), data([1], i64)]), row("i32", [i(3, 5, dtype=i32), data([1], i64)]),
           row("f64", [f(3, 5, dtype=f64), data([4, 1], i64)]), row("strings", [words(3, 5), data([4, 1], i64)]), **V1),
    *table("Binarizer",
           row("threshold 0", [f(3, 4)]), row("another threshold", [f(3, 4)], threshold=0.5), row("equal is not above", [data([0.5, 0.25, 1], f32)], threshold=0.5),
           **V1),
    *table("CategoryMapper",
           row("strings", [words(3, 4)], cats_strings=["a", "b", "longer"], cats_int64s=[5, 7, -2]),
           row("numbers", [i(3, 4)], cats_strings=["a", "b", "longer"], cats_int64s=[5, 7, 2]),
           row("a default number", [words(3, 4)], cats_strings=["a", "b"], cats_int64s=[5, 7], default_int64=99),
           row("a default string", [i(3, 4)], cats_strings=["a", "b"], cats_int64s=[5, 7], default_string="none"), **V1),
    *table("FeatureVectorizer",
           row("one", [f(3, 4)], inputdimensions=[4]), row("three", [f(3, 4), f(3, 1), f(3, 2)], inputdimensions=[4, 1, 2]),
           row("integers", [i(3, 2), i(3, 3)], inputdimensions=[2, 3]), row("i32", [i(3, 2, dtype=i32)], inputdimensions=[2]),
           row("f64", [f(3, 2, dtype=f64), f(3, 2, dtype=f64)], inputdimensions=[2, 2]),
           row("padded and cut", [f(3, 2), f(3, 4)], inputdimensions=[4, 3]), **V1),
    *table("Imputer",
           row("NaN", [data([[1, np.nan, 3], [np.nan, 5, np.nan]], f32)], imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=float("nan")),
           row("a number", [data([[1, 2, 3], [2, 5, 2]], f32)], imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=2.0),
           row("one for all features", [data([[1, 2, 3], [2, 5, 2]], f32)], imputed_value_floats=[7.0], replaced_value_float=2.0),
           row("zero, which is replaced unsaid", [data([[1, 0, 3], [0, 5, 0]], f32)], imputed_value_floats=[7.0, 8.0, 9.0]),
           row("integers", [data([[1, 2, 3], [2, 5, 2]], i64)], imputed_value_int64s=[7, 8, 9], replaced_value_int64=2),
           row("one integer for all", [data([[1, 2, 3], [2, 5, 2]], i64)], imputed_value_int64s=[7], replaced_value_int64=2),
           row("integer zero, which is replaced unsaid", [data([[1, 0, 3], [0, 5, 0]], i64)], imputed_value_int64s=[7, 8, 9]), **V1),
    *table("Normalizer",
           *(row(f"{norm}", [f(3, 5, low=0)], norm=norm) for norm in ("MAX", "L1", "L2")),
           *(row(f"{norm} of a vector", [f(5, low=0)], norm=norm) for norm in ("MAX", "L1", "L2")),
           *(row(f"{norm} of both signs", [f(3, 5)], norm=norm) for norm in ("L1", "L2")),
           # ONNX Runtime divides by the largest number here, the standard's own evaluator by the largest magnitude.
           row("MAX of both signs", [f(3, 5)], norm="MAX", expect=by_reference), row("MAX of negatives", [f(3, 5, low=-3, high=-1)], norm="MAX", expect=by_reference),
           *(row(f"{norm} of zeros", [data(np.zeros((2, 3)), f32)], norm=norm) for norm in ("MAX", "L1", "L2")),
           *(row(f"{norm} of negatives", [f(3, 5, low=-3, high=-1)], norm=norm) for norm in ("L1", "L2")),
           *(row(f"{norm} of {name}", [fill], norm="L2") for norm, name, fill in (("L2", "integers", i(3, 4)), ("L2", "f64", f(3, 4, dtype=f64)),
                                                                                ("L2", "i32", i(3, 4, dtype=i32)))),
           row("a norm unsaid", [f(3, 5, low=0)]), **V1),
    *table("OneHotEncoder",
           row("numbers", [i(3, high=5)], cats_int64s=[0, 1, 2, 3, 4]), row("two axes", [i(3, 2, high=5)], cats_int64s=[4, 0, 2, 3, 1]),
           row("others are zeros", [i(3, 2, high=5)], cats_int64s=[1, 3]), row("zeros said", [i(3, 2, high=5)], cats_int64s=[1, 3], zeros=1),
           row("none other", [i(3, 2, high=3)], cats_int64s=[0, 1, 2], zeros=0), row("strings", [words(3, 2)], cats_strings=["a", "longer", "c"]),
           row("f32", [data([0, 2, 1.0], f32)], cats_int64s=[0, 1, 2]), row("f64", [data([0, 2, 1.0], f64)], cats_int64s=[0, 1, 2]),
           row("i32", [i(3, high=4, dtype=i32)], cats_int64s=[0, 1, 2], expect=given_as(i64)), **V1),
    *table("Scaler",
           row("a feature each", [f(3, 4)], offset=floats(1, 4), scale=floats(2, 4)), row("one for all", [f(3, 4)], offset=[0.5], scale=[2.0]),
           row("integers", [i(3, 4)], offset=floats(1, 4), scale=floats(2, 4)), row("i32", [i(3, 4, dtype=i32)], offset=[0.5], scale=[2.0]),
           row("f64", [f(3, 4, dtype=f64)], offset=floats(1, 4), scale=floats(2, 4)), **V1),
]


def labels(name, fill, keys, values, **rest):
    kinds = ["strings" if isinstance(v[0], str) else "floats" if isinstance(v[0], float) else "int64s" for v in (keys, values)]
    return row(name, [fill], **{f"keys_{kinds[0]}": keys, f"values_{kinds[1]}": values}, **rest)


NAN = float("nan")
LABELS = [
    *table("LabelEncoder",
           row("strings to places", [words(3, 4)], classes_strings=["a", "b", "longer"]),
           row("places to strings", [i(3, 4, high=5)], classes_strings=["a", "b", "longer"]),
           row("a default place", [words(3, 4)], classes_strings=["a", "b"], default_int64=77),
           row("a default string", [i(3, 4, high=5)], classes_strings=["a", "b"], default_string="none"), **V1),
    *table("LabelEncoder",
           labels("strings to numbers", words(3, 4), ["a", "b", "longer"], [3, -1, 2**40]),
           labels("strings to strings", words(3, 4), ["a", "b"], ["x", "yy"], default_string="none"),
           labels("strings to floats", words(3, 4), ["a", "b"], [0.5, -2.0], default_float=9.5),
           labels("numbers to strings", i(3, 4), [1, 2, 3], ["x", "yy", ""]),
           labels("numbers to numbers", i(3, 4), [1, 2, 3], [10, 20, 30], default_int64=-7),
           labels("numbers to floats", i(3, 4), [1, 2, 3], [0.5, 1.5, 2.5]),
           labels("floats to strings", data([[1, 2.5, np.nan, 4]], f32), [1.0, 2.5], ["one", "more"]),
           labels("floats to floats", data([[1, 2.5, 3, -0.0]], f32), [1.0, 2.5, 0.0], [-1.0, -2.5, 8.0], default_float=0.25),
           labels("floats to numbers", data([[1, 2.5, 3]], f32), [1.0, 2.5], [1, 25]),
           version=2, domain=ML),
    *table("LabelEncoder",
           row("tensors: strings to i64", [words(3, 4)], keys_tensor=tensor(["a", "b"], object), values_tensor=tensor([3, 4], i64),
               default_tensor=tensor([9], i64)),
           row("tensors: i64 to f64", [i(3, 4)], keys_tensor=tensor([1, 2, 3], i64), values_tensor=tensor([0.1, 0.2, 0.3], f64),
               default_tensor=tensor([-0.5], f64)),
           row("tensors: f64 to f64", [data([[1, 2.5, 3]], f64)], keys_tensor=tensor([1, 2.5], f64), values_tensor=tensor([0.1, 0.2], f64),
               default_tensor=tensor([-0.5], f64)),
           row("tensors: strings to i16", [words(3, 4)], keys_tensor=tensor(["a", "b"], object), values_tensor=tensor([3, -4], np.int16),
               default_tensor=tensor([9], np.int16)),
           labels("NaN is a key", data([[1, np.nan, 3]], f32), [1.0, NAN], [1, 2]),
           row("numbers, a default tensor", [i(3, 4)], keys_int64s=[1, 2], values_int64s=[5, 6], default_tensor=tensor([9], i64)), **V4),
]

def posted(post):
    """Scores by ONNX Runtime, transformed here: for one target it leaves most transforms out, and TreeEnsemble's it takes for others."""

    def expect(case, inputs):
        plain = replace(case, attributes={k: v for k, v in case.attributes.items() if k != "post_transform"})
        return [POST[post](r.astype(f64)).astype(r.dtype) for r in by_onnxruntime(plain, inputs)]

    return expect


# --- linear models ----------------------------------------------------------------------------------------------------
# Post transforms take the scores through exp or a logarithm; PROBIT near 0 through the difference of nearly equal numbers, in f32.
NEAR = {"rtol": 64, "atol": 32}
LINEAR = [
    *table("LinearRegressor",
           *(row(f"three targets, {post}", [f(4, 5)], coefficients=floats(3, 15), intercepts=floats(4, 3), targets=3, post_transform=post)
             for post in POSTS if post != "PROBIT"),
           row("three targets, PROBIT", [f(4, 5, low=0.1, high=0.3)], coefficients=floats(3, 15, 0.1, 0.6), intercepts=[0.1, 0.0, 0.05], targets=3,
               post_transform="PROBIT"),
           row("no intercepts", [f(4, 5)], coefficients=floats(3, 15), targets=3), row("one target", [f(4, 5)], coefficients=floats(3, 5), intercepts=[0.5]),
           *(row(f"one target, {post}", [f(4, 5)], coefficients=floats(3, 5), intercepts=[0.5], post_transform=post, expect=posted(post))
             for post in POSTS if post != "PROBIT"),
           row("one row", [f(1, 5)], coefficients=floats(3, 5), intercepts=[0.5], targets=1), **V1, **NEAR),
]


def linear_classifier(name, rows, classes, post, **rest):
    return row(f"{name}, {post}", [f(6, 4)], coefficients=floats(5, 4 * rows), intercepts=floats(6, rows), post_transform=post, outputs=(0, 1), **classes, **rest)


LINEAR += [
    *table("LinearClassifier",
           *(linear_classifier("three classes", 3, {"classlabels_ints": [7, 3, 5]}, post) for post in POSTS if post != "PROBIT"),
           *(linear_classifier("two classes, two rows", 2, {"classlabels_ints": [7, 3]}, post) for post in POSTS if post != "PROBIT"),
           *(linear_classifier("two classes, one row", 1, {"classlabels_ints": [7, 3]}, post) for post in ("NONE", "LOGISTIC")),
           *(linear_classifier("strings", 3, {"classlabels_strings": ["a", "b", "c"]}, post) for post in ("NONE", "SOFTMAX")),
           *(linear_classifier("two strings, one row", 1, {"classlabels_strings": ["a", "b"]}, post) for post in ("NONE", "LOGISTIC")),
           linear_classifier("one against the rest", 3, {"classlabels_ints": [0, 1, 2]}, "LOGISTIC", multi_class=1),
           linear_classifier("not one against the rest", 3, {"classlabels_ints": [0, 1, 2]}, "LOGISTIC", multi_class=0),
           *(row(f"features of {name}", [fill], coefficients=floats(5, 12), intercepts=floats(6, 3), classlabels_ints=[0, 1, 2], outputs=(0, 1))
             for name, fill in (("i64", i(6, 4)), ("i32", i(6, 4, dtype=i32)), ("f64", f(6, 4, dtype=f64)))), **V1, **NEAR),
]

# --- support vectors --------------------------------------------------------------------------------------------------
KERNELS = {"LINEAR": [0.5, 0.0, 3.0], "POLY": [0.5, 1.0, 3.0], "RBF": [0.5, 0.0, 3.0], "SIGMOID": [0.25, 0.1, 3.0]}
SVM_FEATURES = 3


def machine(kernel, classes, vectors, probabilities=False):
    """Attributes of SVMClassifier: `vectors` support vectors a class."""
    count, pairs = classes * vectors, classes * (classes - 1) // 2
    made = {"kernel_type": kernel, "kernel_params": KERNELS[kernel], "support_vectors": floats(7, count * SVM_FEATURES),
            "coefficients": floats(8, (classes - 1) * count), "vectors_per_class": [vectors] * classes, "rho": floats(9, pairs)}
    if probabilities:
        made |= {"prob_a": floats(10, pairs, -2, -0.5), "prob_b": floats(11, pairs, -0.2, 0.2)}
    return made


def classifier(name, attributes, fill=None, **rest):
    return row(name, [fill or f(8, SVM_FEATURES)], outputs=(0, 1), **attributes, **rest)


def linear_machine(classes):
    return {"kernel_type": "LINEAR", "kernel_params": KERNELS["LINEAR"], "coefficients": floats(12, classes * SVM_FEATURES), "rho": [0.25] * classes}


INTS, WORDS = {"classlabels_ints": [5, 9, 2]}, {"classlabels_strings": ["x", "yy", "z"]}
TWO, TWO_WORDS = {"classlabels_ints": [5, 9]}, {"classlabels_strings": ["x", "yy"]}
SVMS = [
    *table("SVMClassifier",
           *(classifier(f"{kernel}, three classes", machine(kernel, 3, 4) | INTS) for kernel in KERNELS),
           *(classifier(f"{kernel}, three classes, probabilities", machine(kernel, 3, 4, True) | INTS) for kernel in KERNELS),
           *(classifier(f"{kernel}, two classes", machine(kernel, 2, 4) | TWO) for kernel in KERNELS),
           *(classifier(f"{kernel}, two classes, probabilities", machine(kernel, 2, 4, True) | TWO) for kernel in KERNELS),
           classifier("strings", machine("RBF", 3, 4) | WORDS), classifier("strings, probabilities", machine("RBF", 3, 4, True) | WORDS),
           classifier("two strings", machine("RBF", 2, 4) | TWO_WORDS), classifier("four classes", machine("RBF", 4, 3, True) | {"classlabels_ints": [0, 1, 2, 3]}),
           classifier("classes of different sizes", machine("RBF", 3, 4) | INTS | {"vectors_per_class": [2, 7, 3]}),
           classifier("one row", machine("RBF", 3, 4) | INTS, f(1, SVM_FEATURES)),
           *(classifier(f"three classes, {post}", machine("RBF", 3, 4) | INTS | {"post_transform": post}) for post in POSTS if post != "PROBIT"),
           *(classifier(f"two classes, {post}", machine("RBF", 2, 4) | TWO | {"post_transform": post}) for post in POSTS if post != "PROBIT"),
           *(classifier(f"three classes, probabilities, {post}", machine("RBF", 3, 4, True) | INTS | {"post_transform": post}) for post in POSTS),
           *(classifier(f"two classes, probabilities, {post}", machine("RBF", 2, 4, True) | TWO | {"post_transform": post}) for post in POSTS if post != "PROBIT"),
           classifier("linear, three classes", linear_machine(3) | INTS),
           classifier("linear, three strings", linear_machine(3) | WORDS), classifier("linear, two classes", linear_machine(2) | TWO, expect=by_reference),
           *(classifier(f"linear, three classes, {post}", linear_machine(3) | INTS | {"post_transform": post}) for post in POSTS if post != "PROBIT"),
           *(classifier(f"features of {name}", machine("RBF", 3, 4, True) | INTS, fill)
             for name, fill in (("i64", i(6, SVM_FEATURES, high=3)), ("i32", i(6, SVM_FEATURES, high=3, dtype=i32)), ("f64", f(6, SVM_FEATURES, dtype=f64)))),
           **V1, rtol=256, atol=64),
    *table("SVMRegressor",
           *(row(kernel, [f(8, SVM_FEATURES)], kernel_type=kernel, kernel_params=KERNELS[kernel], support_vectors=floats(13, 6 * SVM_FEATURES),
                 coefficients=floats(14, 6), n_supports=6, rho=[0.3]) for kernel in KERNELS),
           *(row(f"{kernel}, one class", [f(8, SVM_FEATURES)], kernel_type=kernel, kernel_params=KERNELS[kernel],
                 support_vectors=floats(13, 6 * SVM_FEATURES), coefficients=floats(14, 6), n_supports=6, rho=[-0.1], one_class=1) for kernel in KERNELS),
           row("one class said to be off", [f(8, SVM_FEATURES)], kernel_type="RBF", kernel_params=KERNELS["RBF"],
               support_vectors=floats(13, 6 * SVM_FEATURES), coefficients=floats(14, 6), n_supports=6, rho=[-0.1], one_class=0),
           row("no vectors", [f(8, SVM_FEATURES)], kernel_type="LINEAR", kernel_params=KERNELS["LINEAR"], coefficients=floats(15, SVM_FEATURES), n_supports=0, rho=[0.3]),
           row("one row", [f(1, SVM_FEATURES)], kernel_type="RBF", kernel_params=KERNELS["RBF"], support_vectors=floats(13, 6 * SVM_FEATURES),
               coefficients=floats(14, 6), n_supports=6, rho=[0.3]),
           *(row(f"post {post}", [f(8, SVM_FEATURES)], kernel_type="RBF", kernel_params=KERNELS["RBF"], support_vectors=floats(13, 6 * SVM_FEATURES),
                 coefficients=floats(14, 6), n_supports=6, rho=[0.3], post_transform=post, expect=posted(post))
             for post in POSTS if post != "PROBIT"), **V1, **NEAR),
]

# --- trees ------------------------------------------------------------------------------------------------------------
def regressor(name, trees, x=None, **rest):
    own = {k: rest.pop(k) for k in ("tensors", "missing", "hitrates") if k in rest}
    return row(name, [drawn(x or samples(missing=own.get("missing", False)))], n_targets=rest.pop("n_targets", 1), **lists(trees, "target", **own), **rest)


def tree_classifier(name, trees, labels, x=None, **rest):
    own = {k: rest.pop(k) for k in ("tensors", "missing", "hitrates") if k in rest}
    return row(name, [drawn(x or samples(missing=own.get("missing", False)))], outputs=(0, 1), **lists(trees, "class", **own), **labels, **rest)


def forest(name, trees, dtype=np.float32, x=None, **rest):
    own = {k: rest.pop(k) for k in ("missing", "hitrates") if k in rest}
    return row(name, [drawn(x or samples(missing=own.get("missing", False), dtype=dtype))], n_targets=rest.pop("n_targets", 1), **ensemble(trees, dtype, **own), **rest)


LABEL_SETS = {2: {"classlabels_int64s": [4, 8]}, 3: {"classlabels_int64s": [4, 8, 1]}}
LABEL_WORDS = {2: {"classlabels_strings": ["no", "yes"]}, 3: {"classlabels_strings": ["a", "b", "c"]}}
AGGREGATES = ["SUM", "AVERAGE", "MIN", "MAX"]
TREES = [
    *table("TreeEnsembleRegressor",
           *(regressor(f"{mode}", grow(20 + k, modes=[mode])) for k, mode in enumerate(MODES)),
           *(regressor(f"{mode}, missing values", grow(30 + k, modes=[mode], missing=True), missing=True) for k, mode in enumerate(MODES)),
           regressor("modes mixed", grow(40, modes=MODES, trees=8, depth=5)), regressor("modes mixed, missing values", grow(41, modes=MODES, trees=8, depth=5, missing=True), missing=True),
           regressor("missing values that track nothing", grow(42, trees=6), samples(missing=True)),
           *(regressor(f"{aggregate}, one target", grow(43, trees=5), aggregate_function=aggregate) for aggregate in AGGREGATES),
           *(regressor(f"{aggregate}, three targets", grow(44, trees=5, targets=3, per_leaf=2), aggregate_function=aggregate, n_targets=3) for aggregate in AGGREGATES),
           *(regressor(f"{aggregate}, base values", grow(45, trees=5, targets=3, per_leaf=3), aggregate_function=aggregate, n_targets=3, base_values=[0.5, -0.25, 2.0])
             for aggregate in AGGREGATES),
           regressor("one base value", grow(46), base_values=[0.75]),
           *(regressor(f"three targets, {post}", grow(47, targets=3, per_leaf=3), n_targets=3, post_transform=post) for post in POSTS if post != "PROBIT"),
           *(regressor(f"one target, {post}", grow(48), post_transform=post, expect=posted(post)) for post in POSTS if post != "PROBIT"),
           regressor("one target, PROBIT", grow(49, negative=False), post_transform="PROBIT", base_values=[0.01], expect=posted("PROBIT")),
           regressor("one tree", grow(50, trees=1, depth=6)), regressor("trees that are leaves", grow(51, trees=3, depth=0)),
           regressor("many trees", grow(52, trees=120, depth=4, modes=MODES)), regressor("many rows", grow(53, trees=20, depth=4), samples(rows=500)),
           regressor("one row", grow(54, trees=20), samples(rows=1)), regressor("hit rates", grow(55), hitrates=True),
           *(regressor(f"features of {np.dtype(dtype)}", grow(56), samples(dtype=dtype), expect=given_as(f32)) for dtype in (f64, i64, i32)), **V1, **NEAR),
    *table("TreeEnsembleRegressor",
           regressor("numbers in tensors", grow(57, missing=True), tensors=True, missing=True, hitrates=True,
                     base_values_as_tensor=tensor([0.5], f32)), **V3, **NEAR),
    *table("TreeEnsembleClassifier",
           *(tree_classifier(f"{mode}", grow(60 + k, modes=[mode], targets=3, negative=False), LABEL_SETS[3]) for k, mode in enumerate(MODES)),
           # With negative votes a class without one may be the largest: for ONNX Runtime only classes with votes are.
           *(tree_classifier(f"{mode}, votes of any sign", grow(60 + k, modes=[mode], targets=3), LABEL_SETS[3], expect=by_reference)
             for k, mode in enumerate(MODES)),
           tree_classifier("modes mixed, missing values", grow(66, modes=MODES, trees=8, depth=5, targets=3, missing=True), LABEL_SETS[3], missing=True),
           *(tree_classifier(f"three classes, {post}", grow(67, targets=3, per_leaf=3), LABEL_SETS[3], post_transform=post) for post in POSTS if post != "PROBIT"),
           tree_classifier("three classes, PROBIT", grow(68, targets=3, per_leaf=3, negative=False), LABEL_SETS[3], post_transform="PROBIT", base_values=[0.05, 0.05, 0.05], atol=512),
           *(tree_classifier(f"two classes, votes for {'both' if len(voters) > 1 else voters[0]}, {'any sign' if negative else 'positive'}, {post}",
                             grow(69, targets=2, voters=voters, negative=negative, per_leaf=len(voters)), LABEL_SETS[2], post_transform=post)
             for voters in ([0], [1]) for negative in (False, True) for post in POSTS if post != "PROBIT"),
           # ONNX Runtime gives the labels 0 and 1 here, whatever the classes are called: it agrees where both are called 1.
           *(tree_classifier(f"two classes, votes for both, {'any sign' if negative else 'positive'}", grow(69, targets=2, negative=negative, per_leaf=2),
                             LABEL_SETS[2], expect=by_reference) for negative in (False, True)),
           *(tree_classifier(f"two classes both called 1, votes for both, {post}", grow(69, targets=2, negative=False, per_leaf=2), {"classlabels_int64s": [1, 1]},
                             post_transform=post) for post in POSTS if post != "PROBIT"),
           *(tree_classifier(f"two strings, votes for {voters[0]}", grow(70, targets=2, voters=voters), LABEL_WORDS[2]) for voters in ([0], [1])),
           tree_classifier("two strings, votes for both", grow(71, targets=2, per_leaf=2), LABEL_WORDS[2], expect=by_reference),
           tree_classifier("three strings", grow(72, targets=3, negative=False), LABEL_WORDS[3]),
           tree_classifier("base values", grow(73, targets=3), LABEL_SETS[3], base_values=[0.5, 0.0, -0.5]),
           tree_classifier("base values of two classes", grow(74, targets=2, per_leaf=2), LABEL_SETS[2], base_values=[0.5, -0.5], expect=by_reference),
           tree_classifier("one base value", grow(75, targets=2, voters=[0]), LABEL_SETS[2], base_values=[0.25]),
           tree_classifier("many trees", grow(76, trees=90, depth=4, targets=3, per_leaf=2), LABEL_SETS[3]),
           tree_classifier("many rows", grow(77, trees=20, depth=4, targets=3), LABEL_SETS[3], samples(rows=400)),
           tree_classifier("one tree", grow(78, trees=1, targets=3, negative=False), LABEL_SETS[3]), tree_classifier("hit rates", grow(79, targets=3, negative=False), LABEL_SETS[3], hitrates=True),
           *(tree_classifier(f"features of {np.dtype(dtype)}", grow(80, targets=3, negative=False), LABEL_SETS[3], samples(dtype=dtype)) for dtype in (f64, i64, i32)),
           **V1, **NEAR),
    *table("TreeEnsembleClassifier",
           tree_classifier("numbers in tensors", grow(81, targets=3, missing=True), LABEL_SETS[3], tensors=True, missing=True, hitrates=True,
                           base_values_as_tensor=tensor([0.5, 0.0, -0.5], f32)), **V3, **NEAR),
    *table("TreeEnsemble",
           *(forest(f"{mode}", grow(90 + k, modes=[mode])) for k, mode in enumerate(MODES)),
           *(forest(name, trees, expect=summed(trees), missing=missing) for name, trees, missing in (
               ("BRANCH_MEMBER", grow(96, modes=["BRANCH_MEMBER"]), False),
               ("BRANCH_MEMBER, missing values", grow(97, modes=["BRANCH_MEMBER"], missing=True), True),
               ("all modes mixed", grow(110, modes=[*MODES, "BRANCH_MEMBER"], trees=6, depth=5), False),
               ("all modes mixed, missing values", grow(109, modes=[*MODES, "BRANCH_MEMBER"], trees=6, depth=5, missing=True), True))),
           *(forest(f"{mode}, missing values", grow(100 + k, modes=[mode], missing=True), missing=True) for k, mode in enumerate(MODES)),
           forest("modes mixed", grow(108, modes=MODES, trees=6, depth=5)),
           forest("modes mixed, missing values", grow(111, modes=MODES, trees=6, depth=5, missing=True), missing=True),
           *(forest(f"aggregate {k}, three targets", grow(112, trees=5, targets=3), aggregate_function=k, n_targets=3) for k in range(4)),
           *(forest(f"post {post}, three targets", grow(113, trees=5, targets=3), post_transform=k, n_targets=3, expect=posted(post)) for k, post in enumerate(POSTS) if post != "PROBIT"),
           forest("hit rates", grow(114), hitrates=True), forest("f64", grow(115, modes=MODES, trees=6), np.float64),
           forest("one tree", grow(116, trees=1, depth=5)), forest("many rows", grow(117, trees=20, depth=4), x=samples(rows=500)), **V5, **NEAR),
]

# --- maps -------------------------------------------------------------------------------------------------------------
def text_map(keys, values, value=f32):
    return entries(keys, values, object, value)


def number_map(keys, values, value=f32):
    return entries(keys, values, i64, value)


def gives(values, dtype):
    """For maps that ONNX Runtime's Python interface does not pass on: all whose values are not f32, and those without entries."""
    return lambda case, inputs: [np.array(values, dtype)]


SPARSE = {"map_form": "SPARSE", "max_map": 5}
MAPS = [
    *table("ZipMap",
           row("numbers", [f(4, 3)], classlabels_int64s=[0, 1, 2]), row("strings", [f(4, 3)], classlabels_strings=["cat", "dog", "rabbit"]),
           row("labels in another order", [f(4, 3)], classlabels_int64s=[5, -1, 2**40]), row("strings in another order", [f(4, 3)], classlabels_strings=["b", "", "a\u00e4"]),
           row("a vector", [f(3)], classlabels_int64s=[0, 1, 2]), row("one label", [f(2, 1)], classlabels_strings=["only"]),
           row("no rows", [f(0, 3)], classlabels_int64s=[0, 1, 2]), row("many rows", [f(300, 40)], classlabels_int64s=list(range(40, 0, -1))),
           row("a label twice", [f(4, 3)], classlabels_strings=["b", "a", "b"]), row("a number twice", [f(4, 4)], classlabels_int64s=[1, 7, 1, 1]),
           row("not a number, infinite", [data([[np.nan, np.inf], [-np.inf, 0]], f32)], classlabels_int64s=[1, 0]),
           row("too few labels", [f(4, 3)], classlabels_int64s=[0, 1], refused="2 class labels for 3 columns"),
           row("too many labels", [f(3)], classlabels_strings=["a", "b", "c", "d"], refused="4 class labels for 3 columns"),
           row("no labels", [f(4, 3)], refused="either classlabels_strings or classlabels_int64s"),
           row("both labels", [f(4, 2)], classlabels_int64s=[0, 1], classlabels_strings=["a", "b"], refused="either classlabels_strings or classlabels_int64s"),
           row("a scalar", [data(1, f32)], classlabels_int64s=[0], refused="X has 0 axes"),
           row("three axes", [f(1, 4, 3)], classlabels_int64s=[0, 1, 2], refused="X has 3 axes"),
           row("f64", [f(4, 2, dtype=f64)], classlabels_int64s=[0, 1], refused="X is float64"),
           row("integers", [i(4, 2)], classlabels_int64s=[0, 1], refused="X is int64"),
           row("a map", [number_map([1], [2])], classlabels_int64s=[0], refused="is not a tensor"), **V1),
    *table("DictVectorizer",
           row("strings", [text_map(["c", "a"], [3, 1])], string_vocabulary=["a", "b", "c"]),
           row("a word twice", [text_map(["c", "a"], [3, 1])], string_vocabulary=["a", "c", "b", "a"]),
           row("a key that is no word", [text_map(["c", "zebra", "a"], [3, 9, 1])], string_vocabulary=["a", "b", "c"]),
           row("numbers", [number_map([7, -2, 2**40], [3, 1, 2])], int64_vocabulary=[1, 2**40, 7, 0]),
           row("the other vocabulary as well", [number_map([7], [3])], int64_vocabulary=[7, 8], string_vocabulary=["a"]),
           row("nothing in common", [text_map(["x"], [3])], string_vocabulary=["a", "b"]),
           row("no entries", [text_map([], [])], string_vocabulary=["a", "b"], expect=gives([[0, 0]], f32)),
           row("f64", [text_map(["c", "a"], [3.25, 1], f64)], string_vocabulary=["a", "b", "c"], expect=gives([[1, 0, 3.25]], f64)),
           row("i64", [text_map(["c", "a"], [3, 2**60 + 1], i64)], string_vocabulary=["a", "b", "c"], expect=gives([[2**60 + 1, 0, 3]], i64)),
           row("to strings", [number_map([4, 2], ["four", "two"], object)], int64_vocabulary=[2, 3, 4], expect=gives([["two", "", "four"]], object)),
           row("no vocabulary", [text_map(["a"], [1])], refused="string_vocabulary is missing"),
           row("the other vocabulary alone", [number_map([7], [3])], string_vocabulary=["a"], refused="int64_vocabulary is missing"),
           row("a tensor", [f(2)], string_vocabulary=["a"], refused="input 0 is no map"), **V1),
    *table("CastMap",
           *(row(f"{form.get('map_form', 'dense')}, {to}", [number_map([3, 0, 1], [1.5, -2.75, 1e10])], cast_to=to, **form)
             for to in ("TO_FLOAT", "TO_INT64", "TO_STRING") for form in ({}, SPARSE)),
           row("keys below zero", [number_map([3, -5, 1], [1.5, -2.75, 1e10])]), row("the longest number", [number_map([0], [-3.4028235e38])], cast_to="TO_STRING"),
           row("dense, said", [number_map([3, 0], [1.5, -2.75])], map_form="DENSE", max_map=1),
           row("no entries", [number_map([], [])], expect=gives(np.zeros((1, 0)), f32)), row("no entries, sparse", [number_map([], [])], **SPARSE, expect=gives([[0] * 5], f32)),
           row("from strings", [number_map([9, 4], ["-2", "1.5"], object)], expect=gives([[1.5, -2]], f32)),
           row("from strings, sparse", [number_map([3, 1], ["-2", "7"], object)], cast_to="TO_INT64", **SPARSE, expect=gives([[0, 7, 0, -2, 0]], i64)),
           row("strings stay", [number_map([9, 4], ["-2", "x"], object)], cast_to="TO_STRING", expect=gives([["x", "-2"]], object)),
           row("no number", [number_map([9, 4], ["-2", "x"], object)], refused='"x" is not a number'),
           row("a key that is too large", [number_map([5, 1], [1, 2])], **SPARSE, refused="key 5 is not below max_map, 5"),
           row("a key below zero", [number_map([-1, 1], [1, 2])], **SPARSE, refused="key -1"),
           row("no room", [number_map([0], [1])], map_form="SPARSE", max_map=0, refused="max_map is 0"),
           row("unknown form", [number_map([0], [1])], map_form="LOOSE", refused='map_form "LOOSE"'),
           row("unknown type", [number_map([0], [1])], cast_to="TO_DOUBLE", refused='cast_to "TO_DOUBLE"'),
           row("string keys", [text_map(["a"], [1])], refused="the map is from string to float32"),
           row("f64", [number_map([0], [1], f64)], refused="the map is from int64 to float64"), **V1),
]

CASES = [*FEATURES, *LABELS, *LINEAR, *SVMS, *TREES, *MAPS]
