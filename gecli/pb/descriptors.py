"""Message classes from the descriptor bytes that the `*_pb2` modules hold."""

from typing import NamedTuple

from google.protobuf import descriptor_pool, message_factory

# A pool of our own: another package's messages of the same name can never clash with ours.
_POOL = descriptor_pool.DescriptorPool()


class ProtoFile(NamedTuple):
    """One loaded .proto file: its message classes by name."""

    messages: dict


def load(data):
    """Register serialized FileDescriptorProto bytes and build the classes of its top-level messages."""
    file = _POOL.AddSerializedFile(data)
    if file is None:  # the pure-Python implementation returns nothing
        from google.protobuf import descriptor_pb2

        file = _POOL.FindFileByName(descriptor_pb2.FileDescriptorProto.FromString(data).name)
    return ProtoFile(
        {name: message_factory.GetMessageClass(m) for name, m in file.message_types_by_name.items()}
    )
