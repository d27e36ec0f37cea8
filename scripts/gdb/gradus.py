"""Pretty printers for gdb: Tensor, Array, Shape, Device, DType, Half and BFloat16.

    (gdb) source scripts/gdb/gradus.py
    (gdb) print x
    $1 = float32 (2, 3) cpu [[1, 2, 3], [4, 5, 6]] requires_grad

A line in ~/.gdbinit loads them each time. They read memory and call no function of the program, so they also work on
core dumps. Elements in a GPU's memory cannot be read. `set print elements N` limits the elements that are printed.
"""

import struct

import gdb
import gdb.printing

MAX_DIMS = 8
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")  # in the order of DType
DEVICES = ("cpu", "cuda")  # in the order of DeviceType
FORMATS = {"float32": "f", "float64": "d", "float16": "e", "bfloat16": "H", "int64": "q", "int32": "i", "uint8": "B",
           "bool": "?"}
DIGITS = {"float32": 7, "float64": 15, "float16": 4, "bfloat16": 4}


class Invalid(Exception):
    """The memory holds no such object, for example because its constructor has not run yet."""


def name_of(value, names):
    number = int(value)
    if not 0 <= number < len(names):
        raise Invalid
    return names[number]


def dims_of(value):
    size = int(value["size_"])
    if not 0 <= size <= MAX_DIMS:
        raise Invalid
    return [int(value["values_"][i]) for i in range(size)]


def tuple_text(dims):
    return f"({dims[0]},)" if len(dims) == 1 else f"({', '.join(map(str, dims))})"


def device_text(value):
    index, device = int(value["index_"]), name_of(value["type_"], DEVICES)
    return device if device == "cpu" or index < 0 else f"{device}:{index}"


def number_text(data, dtype):
    (number,) = struct.unpack("=" + FORMATS[dtype], data)
    if dtype == "bfloat16":  # the upper half of a float32
        (number,) = struct.unpack("=f", struct.pack("=I", number << 16))
    return f"{number:.{DIGITS[dtype]}g}" if dtype in DIGITS else str(number).lower()


def is_contiguous(shape, strides):
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def elements_text(address, dtype, shape, strides):
    """The elements as nested lists; "..." stands for those beyond `set print elements`."""
    size = struct.calcsize("=" + FORMATS[dtype])
    left = gdb.parameter("print elements") or float("inf")  # 0 or None: all

    def part(axis, offset):
        nonlocal left
        if axis == len(shape):
            left -= 1
            return number_text(gdb.selected_inferior().read_memory(address + offset * size, size).tobytes(), dtype)
        texts = []
        for i in range(shape[axis]):
            if left == 0:
                texts.append("...")
                break
            texts.append(part(axis + 1, offset + i * strides[axis]))
        return f"[{', '.join(texts)}]"

    return "[]" if 0 in shape else part(0, 0)


def array_text(array):
    storage = array["storage_"]["impl_"]["object_"]
    if int(storage) == 0:
        return "undefined"
    shape, strides, offset = dims_of(array["shape_"]), dims_of(array["strides_"]), int(array["offset_"])
    if len(shape) != len(strides):
        raise Invalid
    dtype, device = name_of(array["dtype_"], DTYPES), device_text(storage["device"])
    words = [dtype, tuple_text(shape), device]
    if not is_contiguous(shape, strides):
        words.append("strides " + tuple_text(strides))
    if offset != 0:
        words.append(f"offset {offset}")
    if device == "cpu":
        address = int(storage["data"]) + offset * struct.calcsize("=" + FORMATS[dtype])
        words.append(elements_text(address, dtype, shape, strides))
    return " ".join(words)


def array_of(impl):
    """The Array of a TensorImpl, which is a complete type only where the library has debug information."""
    type_ = impl.type.target().strip_typedefs()
    if any(field.name == "array" for field in type_.fields()):
        return impl["array"]
    array = gdb.lookup_type("gradus::Array")  # the first member, after the reference count
    return (impl.cast(gdb.lookup_type("char").pointer()) + array.alignof).cast(array.pointer()).dereference()


def gradient_words(impl):
    """What the autograd half of a tensor says, if its type is known."""
    try:
        # A unique_ptr with the default deleter is a pointer. (Names of its members differ between standard libraries.)
        pointer = gdb.lookup_type("gradus::AutogradMeta").pointer()
        meta = impl["meta"].address.cast(pointer.pointer()).dereference()
        if int(meta) == 0:
            return []
        words = ["requires_grad"] if bool(meta["requires_grad"]) else []
        return words + (["has grad_fn"] if int(meta["grad_fn"]["object_"]) else [])
    except gdb.error:
        return []


def tensor_text(tensor):
    impl = tensor["impl_"]["object_"]
    if int(impl) == 0:
        return "undefined"
    return " ".join([array_text(array_of(impl)), *gradient_words(impl)])


TEXTS = {
    "Tensor": tensor_text,
    "Array": array_text,
    "Dims": lambda value: tuple_text(dims_of(value)),  # Shape and Strides are other names of Dims
    "Device": device_text,
    "DType": lambda value: name_of(value, DTYPES),
    "Half": lambda value: number_text(struct.pack("=H", int(value["bits"])), "float16"),
    "BFloat16": lambda value: number_text(struct.pack("=H", int(value["bits"])), "bfloat16"),
}


class Printer:
    def __init__(self, text_of, value):
        self.text_of, self.value = text_of, value

    def to_string(self):
        try:
            return self.text_of(self.value)
        except (Invalid, gdb.MemoryError):
            return "<not initialised>"


def register():
    printers = gdb.printing.RegexpCollectionPrettyPrinter("gradus")
    for name, text_of in TEXTS.items():
        printers.add_printer(name, f"^gradus::{name}$", lambda value, text_of=text_of: Printer(text_of, value))
    gdb.printing.register_pretty_printer(None, printers, replace=True)


register()
