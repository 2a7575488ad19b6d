"""What kind of binary file it is, from its first bytes, so that a refusal helps."""

from __future__ import annotations

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n", "PNG image"), (b"\xff\xd8\xff", "JPEG image"), (b"GIF8", "GIF image"), (b"BM", "bitmap image"),
    (b"II*\0", "TIFF image"), (b"MM\0*", "TIFF image"), (b"%PDF", "PDF document"), (b"\x1f\x8b", "gzip archive"),
    (b"PK\x03\x04", "ZIP archive, or a spreadsheet, document or .npz"), (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\0", "xz archive"), (b"\x28\xb5\x2f\xfd", "zstd archive"), (b"7z\xbc\xaf", "7-Zip archive"),
    (b"Rar!", "RAR archive"), (b"\x7fELF", "ELF program or library"), (b"MZ", "Windows program or library"),
    (b"\xcf\xfa\xed\xfe", "macOS program or library"), (b"\0asm", "WebAssembly module"),
    (b"SQLite format 3\0", "SQLite database"), (b"PAR1", "Parquet table"), (b"ARROW1", "Arrow or Feather table"),
    (b"\x89HDF\r\n", "HDF5 file"), (b"CDF", "NetCDF file"), (b"\x93NUMPY", "NumPy array"), (b"ORC", "ORC table"),
    (b"Obj\x01", "Avro file"), (b"\x80\x02", "pickle"), (b"\x80\x03", "pickle"), (b"\x80\x04", "pickle"),
    (b"\x80\x05", "pickle"), (b"OggS", "Ogg media"), (b"ID3", "MP3 audio"), (b"fLaC", "FLAC audio"),
    (b"\xca\xfe\xba\xbe", "Java class or macOS program"), (b"GGUF", "GGUF model"),
)  # fmt: skip


def kind_of_binary(sample: bytes) -> str:
    """A few words for the kind of file that starts with ``sample``."""
    for signature, words in _SIGNATURES:
        if sample.startswith(signature):
            return words
    if sample[:4] == b"RIFF":
        return {b"WEBP": "WebP image", b"WAVE": "WAV audio"}.get(sample[8:12], "RIFF media")
    if sample[4:8] == b"ftyp":
        return "MP4 or QuickTime media"
    if sample[257:262] == b"ustar":
        return "tar archive"
    return "unknown kind" if sample.strip(b"\0") else "only zero bytes"
