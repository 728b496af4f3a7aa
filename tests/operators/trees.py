# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles for tests: grown at random, and told in the attributes of each operator that takes them."""

from dataclasses import dataclass, field

import numpy as np
from onnx import numpy_helper

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
GRID = np.arange(-4, 5) / 2  # of splits and features, so that they are often equal


@dataclass
class Node:
    mode: str
    feature: int = 0
    split: float = 0.0
    yes: int = 0
    no: int = 0
    missing: int = 0
    members: tuple = ()
    votes: list = field(default_factory=list)  # of a leaf: (target, weight)


def grow(seed, trees=4, depth=3, features=3, modes=("BRANCH_LEQ",), targets=1, voters=None, negative=True, missing=False, per_leaf=1):
    """Lists of nodes, a tree each; children stand behind their parents. voters: the targets that leaves vote for."""
    rng = np.random.default_rng(seed)
    voters = list(range(targets)) if voters is None else voters
    made = []
    for _ in range(trees):
        nodes = []

        def add(level):
            at = len(nodes)
            if level == depth or (level and rng.random() < 0.15):
                low = -1.0 if negative else 0.0
                chosen = rng.permutation(voters)[:per_leaf]
                nodes.append(Node("LEAF", votes=[(int(t), float(np.float32(rng.uniform(low, 1) / trees))) for t in chosen]))
                return at
            node = Node(str(rng.choice(modes)), int(rng.integers(features)), float(rng.choice(GRID)), missing=int(missing and rng.random() < 0.5))
            if node.mode == "BRANCH_MEMBER":
                node.members = tuple(float(x) for x in rng.permutation(GRID)[: rng.integers(1, 5)])
            nodes.append(node)
            node.yes, node.no = add(level + 1), add(level + 1)
            return at

        add(0)
        made.append(nodes)
    return made


TESTS = {
    "BRANCH_LEQ": lambda x, node: x <= node.split,
    "BRANCH_LT": lambda x, node: x < node.split,
    "BRANCH_GTE": lambda x, node: x >= node.split,
    "BRANCH_GT": lambda x, node: x > node.split,
    "BRANCH_EQ": lambda x, node: x == node.split,
    "BRANCH_NEQ": lambda x, node: x != node.split,
    "BRANCH_MEMBER": lambda x, node: x in node.members,
}


def summed(trees, targets=1):
    """What the trees come to, by walking them: for sets, which ONNX Runtime refuses."""

    def expect(case, inputs):
        sums = np.zeros((len(inputs[0]), targets))
        for row, features in zip(sums, inputs[0]):
            for tree in trees:
                node = tree[0]
                while node.mode != "LEAF":
                    x = features[node.feature]
                    node = tree[node.yes if TESTS[node.mode](x, node) or (np.isnan(x) and node.missing) else node.no]
                for target, weight in node.votes:
                    row[target] += weight
        return [sums.astype(inputs[0].dtype)]

    return expect


def samples(rows=24, features=3, missing=False, dtype=np.float32):
    """Features on the grid, some missing."""

    def draw(rng):
        x = rng.choice(GRID, (rows, features)).astype(dtype)
        if missing:
            x[rng.random(x.shape) < 0.2] = np.nan
        return x

    return draw


def lists(trees, votes, tensors=False, missing=False, hitrates=False, dtype=np.float32):
    """Attributes of TreeEnsembleRegressor and TreeEnsembleClassifier; votes: "target" or "class". tensors: numbers as tensors."""
    nodes = [(t, k, node) for t, tree in enumerate(trees) for k, node in enumerate(tree)]
    leaves = [(t, k, target, weight) for t, k, node in nodes for target, weight in node.votes]
    made = {
        "nodes_treeids": [t for t, _, _ in nodes],
        "nodes_nodeids": [k for _, k, _ in nodes],
        "nodes_featureids": [node.feature for _, _, node in nodes],
        "nodes_modes": [node.mode for _, _, node in nodes],
        "nodes_truenodeids": [node.yes for _, _, node in nodes],
        "nodes_falsenodeids": [node.no for _, _, node in nodes],
        f"{votes}_treeids": [leaf[0] for leaf in leaves],
        f"{votes}_nodeids": [leaf[1] for leaf in leaves],
        f"{votes}_ids": [leaf[2] for leaf in leaves],
    }
    numbers = {"nodes_values": [node.split for _, _, node in nodes], f"{votes}_weights": [leaf[3] for leaf in leaves]}
    if hitrates:
        numbers["nodes_hitrates"] = [1.0] * len(nodes)
    for name, values in numbers.items():
        made |= {f"{name}_as_tensor": numpy_helper.from_array(np.array(values, dtype))} if tensors else {name: values}
    if missing:
        made["nodes_missing_value_tracks_true"] = [node.missing for _, _, node in nodes]
    return made


def ensemble(trees, dtype=np.float32, missing=False, hitrates=False):
    """Attributes of TreeEnsemble, whose leaves stand in lists of their own."""
    numbers, leaf_numbers, roots = {}, {}, []
    for t, tree in enumerate(trees):
        for k, node in enumerate(tree):
            (leaf_numbers if node.mode == "LEAF" else numbers)[t, k] = len(leaf_numbers if node.mode == "LEAF" else numbers)
    inner = [(t, tree[k]) for t, tree in enumerate(trees) for k in range(len(tree)) if tree[k].mode != "LEAF"]
    leaves = [node for tree in trees for node in tree if node.mode == "LEAF"]
    modes = [*MODES, "BRANCH_MEMBER"]

    def child(t, k):
        leaf = (t, k) in leaf_numbers
        return int(leaf), (leaf_numbers if leaf else numbers)[t, k]

    yes, no = [child(t, node.yes) for t, node in inner], [child(t, node.no) for t, node in inner]
    roots = [numbers[t, 0] for t in range(len(trees))]
    made = {
        "nodes_featureids": [node.feature for _, node in inner],
        "nodes_modes": numpy_helper.from_array(np.array([modes.index(node.mode) for _, node in inner], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([node.split for _, node in inner], dtype)),
        "nodes_trueleafs": [leaf for leaf, _ in yes],
        "nodes_truenodeids": [at for _, at in yes],
        "nodes_falseleafs": [leaf for leaf, _ in no],
        "nodes_falsenodeids": [at for _, at in no],
        "tree_roots": roots,
        "leaf_targetids": [leaf.votes[0][0] for leaf in leaves],
        "leaf_weights": numpy_helper.from_array(np.array([leaf.votes[0][1] for leaf in leaves], dtype)),
    }
    sets = [value for _, node in inner if node.mode == "BRANCH_MEMBER" for value in (*node.members, np.nan)]
    if sets:
        made["membership_values"] = numpy_helper.from_array(np.array(sets, dtype))
    if missing:
        made["nodes_missing_value_tracks_true"] = [node.missing for _, node in inner]
    if hitrates:
        made["nodes_hitrates"] = numpy_helper.from_array(np.ones(len(inner), dtype))
    return made
