"""Train the digit classifier of this folder in numpy and write it as ONNX, with its held-out images and answers.

Network: Conv 3x3 - BatchNorm - Relu - MaxPool 2x2 - Conv 3x3 - BatchNorm - Relu - GlobalAveragePool - Gemm - Softmax,
on scikit-learn's 8x8 digits. Images are float32 [batch,1,8,8] with values from 0 to 1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

Array = NDArray[np.float32]
Labels = NDArray[np.int64]
Params = dict[str, Array]

HERE = Path(__file__).resolve().parent
SEED = 2024
HELD_OUT = 360  # images; the other 1437 are the training set
CLASSES = 10
KERNEL = 3
PAD = 1
EPOCHS = 25
BATCH = 32
LEARNING_RATE = 0.05
MOMENTUM = 0.9
BN_EPSILON = 1e-5
BN_KEEP = 0.9  # share of the old running statistic that one batch keeps, as in ONNX BatchNormalization
OPSET = 17
IR_VERSION = 8  # the version that came with opset 17


def main() -> None:
    """Train, export, and write the held-out data with the answers of onnxruntime."""
    images, labels, test_images, test_labels = split_digits()
    params = initial_params(np.random.default_rng(SEED))
    train(params, images, labels)

    model_path = HERE / "digits.onnx"
    onnx.save(to_onnx(params), model_path)
    session = onnxruntime.InferenceSession(str(model_path), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"image": test_images})

    np.savez_compressed(HERE / "test_images.npz", image=test_images)
    np.save(HERE / "test_labels.npy", test_labels)
    np.savez(HERE / "expected.npz", probabilities=probabilities)
    correct = int((probabilities.argmax(axis=1) == test_labels).sum())
    print(f"held-out accuracy {correct / HELD_OUT:.3f} ({correct} of {HELD_OUT})")


def split_digits() -> tuple[Array, Labels, Array, Labels]:
    """Training images and labels, then held-out images and labels; the same split every time."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    images = (digits.images[order] / 16.0).astype(np.float32)[:, None]
    labels = digits.target[order].astype(np.int64)
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def initial_params(rng: np.random.Generator) -> Params:
    """Random weights scaled for Relu, identity normalisation, zero bias. Filters are [out,in,3,3]."""

    def scaled(*shape: int, fan_in: int) -> Array:
        return (rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)

    params = {
        "conv1_filter": scaled(16, 1, KERNEL, KERNEL, fan_in=9),
        "conv2_filter": scaled(32, 16, KERNEL, KERNEL, fan_in=16 * 9),
        "fc_weight": scaled(32, CLASSES, fan_in=32),
        "fc_bias": np.zeros(CLASSES, np.float32),
    }
    for name, channels in (("bn1", 16), ("bn2", 32)):
        params[f"{name}_scale"] = np.ones(channels, np.float32)
        params[f"{name}_offset"] = np.zeros(channels, np.float32)
        params[f"{name}_mean"] = np.zeros(channels, np.float32)
        params[f"{name}_variance"] = np.ones(channels, np.float32)
    return params


# --- training ---------------------------------------------------------------------------------------------------------


def train(params: Params, images: Array, labels: Labels) -> None:
    """Momentum descent over shuffled batches; the rate falls to zero along a cosine. Changes `params`."""
    rng = np.random.default_rng(SEED + 1)
    batches = len(images) // BATCH  # the last, short batch is left out: its statistics would be poor
    velocity = {name: np.zeros_like(value) for name, value in params.items()}
    for epoch in range(EPOCHS):
        order = rng.permutation(len(images))
        losses = []
        for batch in range(batches):
            chosen = order[batch * BATCH : (batch + 1) * BATCH]
            loss, gradients = loss_and_gradients(params, images[chosen], labels[chosen])
            progress = (epoch * batches + batch) / (EPOCHS * batches)
            descend(params, velocity, gradients, LEARNING_RATE * 0.5 * (1.0 + np.cos(np.pi * progress)))
            losses.append(loss)
        print(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.4f}")


def descend(params: Params, velocity: Params, gradients: Params, rate: float) -> None:
    """One step with momentum on every parameter that has a gradient."""
    for name, gradient in gradients.items():
        velocity[name] = (MOMENTUM * velocity[name] + gradient).astype(np.float32)
        params[name] = (params[name] - rate * velocity[name]).astype(np.float32)


def loss_and_gradients(params: Params, images: Array, labels: Labels) -> tuple[float, Params]:
    """Mean cross entropy of a batch and its gradients; moves the running statistics of both normalisations."""
    conv1, columns1 = conv(images, params["conv1_filter"])
    norm1, cache1 = batch_norm(params, "bn1", conv1)
    relu1 = np.maximum(norm1, 0)
    pool1, winners = max_pool(relu1)
    conv2, columns2 = conv(pool1, params["conv2_filter"])
    norm2, cache2 = batch_norm(params, "bn2", conv2)
    relu2 = np.maximum(norm2, 0)
    features = relu2.mean(axis=(2, 3))
    probabilities = softmax(features @ params["fc_weight"] + params["fc_bias"])
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()

    gradients: Params = {}
    d_logits = probabilities.copy()
    d_logits[rows, labels] -= 1
    d_logits /= len(labels)
    gradients["fc_weight"] = features.T @ d_logits
    gradients["fc_bias"] = d_logits.sum(axis=0)
    d_features = d_logits @ params["fc_weight"].T
    area = relu2.shape[2] * relu2.shape[3]
    d_relu2 = np.broadcast_to(d_features[:, :, None, None] / area, relu2.shape)
    d_conv2 = batch_norm_backward(params, "bn2", d_relu2 * (norm2 > 0), cache2, gradients)
    gradients["conv2_filter"] = conv_filter_gradient(d_conv2, columns2, params["conv2_filter"].shape)
    d_pool1 = conv_input_gradient(d_conv2, params["conv2_filter"])
    d_relu1 = max_pool_backward(d_pool1, winners)
    d_conv1 = batch_norm_backward(params, "bn1", d_relu1 * (norm1 > 0), cache1, gradients)
    gradients["conv1_filter"] = conv_filter_gradient(d_conv1, columns1, params["conv1_filter"].shape)
    return float(loss), gradients


# --- layers -----------------------------------------------------------------------------------------------------------


def im2col(x: Array) -> Array:
    """The 3x3 neighbourhoods of [batch,channel,h,w] with zero padding: [batch*h*w, channel*9]."""
    batch, channels, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (KERNEL, KERNEL), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(batch * height * width, channels * KERNEL * KERNEL)


def col2im(columns: Array, shape: tuple[int, ...]) -> Array:
    """The adjoint of im2col: add every neighbourhood back to the places that it was read from."""
    batch, channels, height, width = shape
    windows = columns.reshape(batch, height, width, channels, KERNEL, KERNEL).transpose(0, 3, 4, 5, 1, 2)
    padded = np.zeros((batch, channels, height + 2 * PAD, width + 2 * PAD), columns.dtype)
    for row in range(KERNEL):
        for column in range(KERNEL):
            padded[:, :, row : row + height, column : column + width] += windows[:, :, row, column]
    return padded[:, :, PAD:-PAD, PAD:-PAD]


def conv(x: Array, filters: Array) -> tuple[Array, Array]:
    """Convolution, stride 1, same size; also returns the columns for the filter's gradient."""
    batch, _, height, width = x.shape
    columns = im2col(x)
    flat = columns @ filters.reshape(len(filters), -1).T
    return flat.reshape(batch, height, width, -1).transpose(0, 3, 1, 2), columns


def conv_filter_gradient(d_y: Array, columns: Array, shape: tuple[int, ...]) -> Array:
    """Gradient of the filter from the gradient of the output."""
    return (channels_last(d_y).T @ columns).reshape(shape)


def conv_input_gradient(d_y: Array, filters: Array) -> Array:
    """Gradient of the input from the gradient of the output."""
    batch, _, height, width = d_y.shape
    return col2im(channels_last(d_y) @ filters.reshape(len(filters), -1), (batch, filters.shape[1], height, width))


def channels_last(x: Array) -> Array:
    """[batch,channel,h,w] as a matrix with one row for each pixel."""
    return x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1])


def batch_norm(params: Params, name: str, x: Array) -> tuple[Array, tuple[Array, Array]]:
    """Normalise each channel with the statistics of the batch and move the running ones."""
    mean = x.mean(axis=(0, 2, 3))
    variance = x.var(axis=(0, 2, 3))
    params[f"{name}_mean"] = (BN_KEEP * params[f"{name}_mean"] + (1 - BN_KEEP) * mean).astype(np.float32)
    params[f"{name}_variance"] = (BN_KEEP * params[f"{name}_variance"] + (1 - BN_KEEP) * variance).astype(np.float32)
    inverse = 1.0 / np.sqrt(variance + BN_EPSILON)
    normal = (x - per_channel(mean)) * per_channel(inverse)
    return normal * per_channel(params[f"{name}_scale"]) + per_channel(params[f"{name}_offset"]), (normal, inverse)


def batch_norm_backward(params: Params, name: str, d_y: Array, cache: tuple[Array, Array], gradients: Params) -> Array:
    """Gradient of the input; stores those of scale and offset."""
    normal, inverse = cache
    d_offset = d_y.sum(axis=(0, 2, 3))
    d_scale = (d_y * normal).sum(axis=(0, 2, 3))
    gradients[f"{name}_offset"] = d_offset
    gradients[f"{name}_scale"] = d_scale
    count = d_y.size // d_y.shape[1]
    centred = d_y - per_channel(d_offset / count) - normal * per_channel(d_scale / count)
    return centred * per_channel(params[f"{name}_scale"] * inverse)


def per_channel(values: Array) -> Array:
    """One value for each channel, ready to broadcast over [batch,channel,h,w]."""
    return values[:, None, None]


def max_pool(x: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Largest of each 2x2 window; also marks the first largest element of each window."""
    batch, channels, height, width = x.shape
    windows = x.reshape(batch, channels, height // 2, 2, width // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    windows = windows.reshape(batch, channels, height // 2, width // 2, 4)
    winners = windows.argmax(axis=-1)[..., None] == np.arange(4)
    return windows.max(axis=-1), winners


def max_pool_backward(d_y: Array, winners: NDArray[np.bool_]) -> Array:
    """Hand the gradient of each window to its winner."""
    batch, channels, height, width = d_y.shape
    windows = (d_y[..., None] * winners).reshape(batch, channels, height, width, 2, 2)
    return windows.transpose(0, 1, 2, 4, 3, 5).reshape(batch, channels, 2 * height, 2 * width)


def softmax(x: Array) -> Array:
    """Probabilities over the last axis."""
    exponent = np.exp(x - x.max(axis=1, keepdims=True))
    return exponent / exponent.sum(axis=1, keepdims=True)


# --- export -----------------------------------------------------------------------------------------------------------


def to_onnx(params: Params) -> onnx.ModelProto:
    """The network as an ONNX model; BatchNormalization stays a node, so that compilers have something to fold."""
    same = {"kernel_shape": [KERNEL, KERNEL], "pads": [PAD] * 4, "strides": [1, 1]}

    def norm(name: str, x: str, y: str) -> onnx.NodeProto:
        inputs = [x, *(f"{name}_{part}" for part in ("scale", "offset", "mean", "variance"))]
        return helper.make_node("BatchNormalization", inputs, [y], name=name, epsilon=BN_EPSILON, momentum=BN_KEEP)

    nodes = [
        helper.make_node("Conv", ["image", "conv1_filter"], ["conv1_out"], name="conv1", **same),
        norm("bn1", "conv1_out", "bn1_out"),
        helper.make_node("Relu", ["bn1_out"], ["relu1_out"], name="relu1"),
        helper.make_node("MaxPool", ["relu1_out"], ["pool1_out"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pool1_out", "conv2_filter"], ["conv2_out"], name="conv2", **same),
        norm("bn2", "conv2_out", "bn2_out"),
        helper.make_node("Relu", ["bn2_out"], ["relu2_out"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["relu2_out"], ["pool2_out"], name="pool2"),
        helper.make_node("Flatten", ["pool2_out"], ["features"], name="flatten", axis=1),
        helper.make_node("Gemm", ["features", "fc_weight", "fc_bias"], ["logits"], name="fc"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        inputs=[helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        outputs=[helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES])],
        initializer=[numpy_helper.from_array(value, name) for name, value in params.items()],
    )
    model = helper.make_model(
        graph, producer_name="gecli-samples", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    main()
