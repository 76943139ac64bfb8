"""The 256-byte header of an OM file, versions 1 and 2 (GE: ModelFileHeader)."""

from __future__ import annotations

import struct

from gecli.records import dataclass

HEADER_BYTES = 256
MAGIC = b"IMOD"
VERSION_1 = 0x10000000
VERSION_2 = 0x20000000
CHECKSUM_MARKER = b"gecli1"  # in checksum[58..63]: checksum[0..31] is the SHA-256 of the payload
NAME_BYTES = 32
PLATFORM_VERSION_BYTES = 20

IR_MODEL, STANDARD_MODEL, TINY_MODEL, FLOW_MODEL, LITE_MODEL, BUNDLE_MODEL = range(6)

_COMMON = struct.Struct("<4sII64sI4B32sI32sI")
_TAIL_1 = struct.Struct("<20sB")
_TAIL_2 = struct.Struct("<I20sB3sQBB62s")


@dataclass(frozen=True, slots=True)
class OmHeader:
    """The header fields; those that version 1 lacks have the values of a single static model."""

    name: str = ""
    version: int = VERSION_2
    magic: bytes = MAGIC
    headsize: int = HEADER_BYTES
    checksum: bytes = bytes(64)
    length: int = 0
    is_encrypt: int = 0
    is_checksum: int = 0
    modeltype: int = IR_MODEL
    genmode: int = 0
    ops: int = 0
    userdefineinfo: bytes = bytes(32)
    om_ir_version: int = 2
    model_num: int = 1
    platform_version: str = "1.11.z.0"
    platform_type: int = 1
    model_length: int = 0
    need_check_os_cpu_info: int = 0
    is_unknow_model: int = 0  # 1: dynamic shapes (GE's spelling)
    padding_is_zero: bool = True

    @property
    def is_version_1(self) -> bool:
        return self.version < VERSION_2

    @property
    def payload_bytes(self) -> int:
        """Declared length of everything behind the header."""
        return self.model_length or self.length

    @property
    def payload_sha256(self) -> bytes | None:
        """The digest that gecli put into the checksum field; None in files of other writers."""
        return self.checksum[:32] if self.checksum[58:] == CHECKSUM_MARKER else None

    def pack(self) -> bytes:
        """The 256 bytes of a version 2 header."""
        common = _COMMON.pack(
            self.magic,
            self.headsize,
            self.version,
            self.checksum,
            self.length,
            self.is_encrypt,
            self.is_checksum,
            self.modeltype,
            self.genmode,
            cut_utf8(self.name, NAME_BYTES - 1),
            self.ops,
            self.userdefineinfo,
            self.om_ir_version,
        )
        tail = _TAIL_2.pack(
            self.model_num,
            self.platform_version.encode()[: PLATFORM_VERSION_BYTES - 1],
            self.platform_type,
            bytes(3),
            self.model_length,
            self.need_check_os_cpu_info,
            self.is_unknow_model,
            bytes(62),
        )
        return common + tail


def parse_header(data: bytes, *, as_version_2: bool = False) -> OmHeader:
    """The header in the first 256 bytes of a file. Any bytes give a header: the caller judges the values.

    `as_version_2` is for bundles, whose version field is 0.
    """
    magic, headsize, version, checksum, length, encrypt, check, kind, genmode, name, ops, info, ir = (
        _COMMON.unpack_from(data)
    )
    fields = {
        "magic": magic,
        "headsize": headsize,
        "version": version,
        "checksum": checksum,
        "length": length,
        "is_encrypt": encrypt,
        "is_checksum": check,
        "modeltype": kind,
        "genmode": genmode,
        "name": _text(name),
        "ops": ops,
        "userdefineinfo": info,
        "om_ir_version": ir,
    }
    if version < VERSION_2 and not as_version_2:
        platform, platform_type = _TAIL_1.unpack_from(data, _COMMON.size)
        return OmHeader(**fields, platform_version=_text(platform), platform_type=platform_type)
    models, platform, platform_type, padding, length, cpu, unknown, reserved = _TAIL_2.unpack_from(data, _COMMON.size)
    return OmHeader(
        **fields,
        model_num=models,
        platform_version=_text(platform),
        platform_type=platform_type,
        model_length=length,
        need_check_os_cpu_info=cpu,
        is_unknow_model=unknown,
        padding_is_zero=not any(padding) and not any(reserved),
    )


def cut_utf8(text: str, limit: int) -> bytes:
    """At most `limit` bytes of UTF-8, never half a character."""
    data = text.encode("utf-8", "surrogateescape")
    if len(data) <= limit:
        return data
    return data[:limit].decode("utf-8", "ignore").encode()


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")
