#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pictures of this folder and what Pillow reads from them (expected.txt), for tests/runtime/test_image.c.

    write.py FOLDER    needs Pillow and numpy, which no test does

Each line of expected.txt: file, width, height, FNV-1a hashes of the rows as RGB and as luma (Pillow's convert)."""
import io
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image

W, H = 21, 13
folder = pathlib.Path(sys.argv[1])
y, x = np.mgrid[0:H, 0:W]
rgb = np.stack([np.clip(128 + 90 * np.sin(x / (3 + c) + c) + 60 * np.cos(y / (4 - c)), 0, 255) for c in range(3)], -1).astype(np.uint8)
picture = Image.fromarray(rgb)
grey = picture.convert("L")
alpha = picture.copy()
alpha.putalpha(Image.fromarray(rgb[:, :, 0]))
palette = picture.quantize(16)
wide = rgb.astype(np.uint16) * 257 ^ 0x35
files, others = {}, {}  # others: pixels of what Pillow does not read, or not well


def save(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


# --- what Pillow does not write ---------------------------------------------------------------------------------------
def png(width, height, depth, colour, interlaced, rows):
    """rows: a list of (list of rows of bytes), one a pass."""
    data = b"".join(b"\0" + row for part in rows for row in part)
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def adam7(pixels):
    for left, top, across, down in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[top::down, left::across]
        yield [row.tobytes() for row in part] if part.size else []


def tiff(tags, pieces):
    """Little-endian: the pieces (strips or tiles), then one directory. tags: {number: (type, values)}."""
    data, offsets = b"II*\0\0\0\0\0", []
    for piece in pieces:
        offsets.append(len(data))
        data += piece + b"\0" * (len(piece) % 2)
    place, sizes = (324, 325) if 322 in tags else (273, 279)
    tags = {**tags, place: (4, offsets), sizes: (4, [len(piece) for piece in pieces])}
    entries = b""
    for number, (kind, values) in sorted(tags.items()):
        packed = struct.pack("<%d%s" % (len(values), {3: "H", 4: "I"}[kind]), *values)
        if len(packed) > 4:
            entries += struct.pack("<HHII", number, kind, len(values), len(data))
            data += packed + b"\0" * (len(packed) % 2)
        else:
            entries += struct.pack("<HHI4s", number, kind, len(values), packed)
    return data[:4] + struct.pack("<I", len(data)) + data[8:] + struct.pack("<H", len(tags)) + entries + b"\0\0\0\0"


def tiff_tags(samples, bits, photometric, **more):
    tags = {256: (3, [W]), 257: (3, [H]), 258: (3, [bits] * samples), 259: (3, [1]), 262: (3, [photometric]), 277: (3, [samples]), 278: (3, [H])}
    tags.update({int(number[1:]): value for number, value in more.items()})
    return tags


def bmp(bits, compression, rows, colours=b"", header=40, masks=b"", height=H):
    if header == 12:
        info = struct.pack("<IHHHH", 12, W, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", 40, W, height, 1, bits, compression, len(rows), 0, 0, len(colours) // 4, 0)
        info = struct.pack("<I", header) + (info[4:] + masks).ljust(header - 4, b"\0") if header > 40 else info + masks
    at = 14 + len(info) + len(colours)
    return b"BM" + struct.pack("<IHHI", at + len(rows), 0, 0, at) + info + colours + rows


def bmp_rows(rows):
    return b"".join(row + b"\0" * (-len(row) % 4) for row in rows)


def packed(numbers, bits):
    text = "".join(format(n, f"0{bits}b") for n in numbers)
    return bytes(int(text[i:i + 8].ljust(8, "0"), 2) for i in range(0, len(text), 8))


def runs(rows, bits):
    """Runs where pixels repeat, literals where they do not."""
    out = b""
    for row in rows:
        row, at = list(row), 0
        while at < len(row):
            end = at
            while end < len(row) and row[end] == row[at]:
                end += 1
            if end - at >= 2 or len(row) - at < 3:
                out += bytes([end - at, row[at] * 17 if bits == 4 else row[at]])
            else:
                end = at
                while end < len(row) and (end + 1 >= len(row) or row[end] != row[end + 1]):
                    end += 1
                if end - at < 3:
                    end = at + 1
                    out += bytes([1, row[at] * 16 if bits == 4 else row[at]])
                else:
                    literal = packed(row[at:end], 4) if bits == 4 else bytes(row[at:end])
                    out += bytes([0, end - at]) + literal + b"\0" * (len(literal) % 2)
            at = end
        out += b"\0\0"
    return out + b"\0\1"


# --- the pictures -----------------------------------------------------------------------------------------------------
files["plain.jpg"] = save(picture, "JPEG", quality=85)
files["progressive.jpg"] = save(picture, "JPEG", quality=60, progressive=True, subsampling=1)
files["full_chroma.jpg"] = save(picture, "JPEG", subsampling=0, restart_marker_blocks=1)
files["grey.jpg"] = save(grey, "JPEG")
files["cmyk.jpg"] = save(picture.convert("CMYK"), "JPEG")
exif = picture.getexif()
exif[274] = 6
files["turned_by_exif.jpg"] = save(picture, "JPEG", exif=exif)

files["plain.png"] = save(picture, "PNG")
files["grey.png"] = save(grey, "PNG")
files["alpha.png"] = save(alpha, "PNG")
files["palette.png"] = save(palette, "PNG", bits=4, transparency=3)
files["bits.png"] = save(picture.convert("1"), "PNG")
files["interlaced.png"] = png(W, H, 8, 2, 1, adam7(rgb))
files["wide.png"] = png(W, H, 16, 2, 0, [[row.astype(">u2").tobytes() for row in wide]])
files["wide_interlaced.png"] = png(W, H, 16, 2, 1, adam7(wide.astype(">u2")))
files["wide_grey.png"] = png(W, H, 16, 0, 0, [[row.astype(">u2").tobytes() for row in wide[:, :, 0]]])
others["wide_grey.png"] = (wide[:, :, 0] >> 8).astype(np.uint8)  # which Pillow clips to 255

files["plain.tiff"] = save(picture, "TIFF")
files["lzw.tiff"] = save(picture, "TIFF", compression="tiff_lzw", tiffinfo={317: 2, 278: 4})
files["deflate.tiff"] = save(alpha, "TIFF", compression="tiff_adobe_deflate")
files["packbits.tiff"] = save(grey, "TIFF", compression="packbits")
files["palette.tiff"] = save(palette, "TIFF")
files["fax.tiff"] = save(picture.convert("1"), "TIFF", compression="group4")
files["cmyk.tiff"] = save(picture.convert("CMYK"), "TIFF", compression="tiff_lzw")
files["jpeg.tiff"] = save(picture, "TIFF", compression="jpeg")
for orientation in range(2, 9):
    files[f"turned_{orientation}.tiff"] = save(picture, "TIFF", tiffinfo={274: orientation})
tile = np.zeros((16, 32, 3), np.uint8)
tile[:H, :W] = rgb
files["tiled.tiff"] = tiff(tiff_tags(3, 8, 2, _322=(3, [16]), _323=(3, [16])), [tile[:, :16].tobytes(), tile[:, 16:].tobytes()])
files["planes.tiff"] = tiff(tiff_tags(3, 8, 2, _284=(3, [2]), _278=(3, [5])),
                            [rgb[top:top + 5, :, c].tobytes() for c in range(3) for top in range(0, H, 5)])
files["wide.tiff"] = tiff(tiff_tags(3, 16, 2), [wide.astype("<u2").tobytes()])
files["white_is_0.tiff"] = tiff(tiff_tags(1, 8, 0), [(255 - rgb[:, :, 0]).tobytes()])
files["four_bits.tiff"] = tiff(tiff_tags(1, 4, 1), [b"".join(packed(row >> 4, 4) for row in rgb[:, :, 0])])
shade = rgb[:, :, :1].astype(int)
multiplied = np.concatenate([rgb * shade // 255, shade], -1).astype(np.uint8)
files["premultiplied.tiff"] = tiff(tiff_tags(4, 8, 2, _338=(3, [1])), [multiplied.tobytes()])

files["lossy.webp"] = save(picture, "WEBP", quality=80)
files["lossless.webp"] = save(picture, "WEBP", lossless=True)
files["alpha.webp"] = save(alpha, "WEBP", lossless=True, exact=True)
files["animation.webp"] = save(picture, "WEBP", lossless=True, save_all=True, append_images=[picture.rotate(180)], duration=100)

files["plain.jp2"] = save(picture, "JPEG2000")
files["grey.jp2"] = save(grey, "JPEG2000")
files["alpha.jp2"] = save(alpha, "JPEG2000")
files["lossy.j2k"] = save(picture, "JPEG2000", no_jp2=True, irreversible=True, quality_mode="dB", quality_layers=[40])
files["tiles.j2k"] = save(picture, "JPEG2000", no_jp2=True, tile_size=(16, 16))

numbers = np.array(palette)
colours = b"".join(bytes([b, g, r, 0]) for r, g, b in zip(*[iter(palette.getpalette()[:48])] * 3))
upside = numbers[::-1]
five = (rgb.astype(np.uint16) >> 3)[::-1]
bgr = rgb[::-1, :, ::-1]
files["24.bmp"] = save(picture, "BMP")
files["1.bmp"] = save(picture.convert("1"), "BMP")
files["4.bmp"] = bmp(4, 0, bmp_rows(packed(row, 4) for row in upside), colours)
files["8.bmp"] = bmp(8, 0, bmp_rows(row.astype(np.uint8).tobytes() for row in upside), colours)
files["8_from_the_top.bmp"] = bmp(8, 0, bmp_rows(row.astype(np.uint8).tobytes() for row in numbers), colours, height=-H)
files["8_os2.bmp"] = bmp(8, 0, bmp_rows(row.astype(np.uint8).tobytes() for row in upside),
                         b"".join(colours[i:i + 3] for i in range(0, 64, 4)).ljust(768, b"\0"), header=12)
files["16.bmp"] = bmp(16, 0, bmp_rows((row[:, 0] << 10 | row[:, 1] << 5 | row[:, 2]).astype("<u2").tobytes() for row in five))
files["16_masks.bmp"] = bmp(16, 3, bmp_rows((row[:, 0] << 11 | row[:, 1] << 6 | row[:, 2]).astype("<u2").tobytes() for row in five),
                            masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F))
files["32.bmp"] = bmp(32, 0, np.concatenate([bgr, bgr[:, :, :1]], -1).tobytes())
files["32_masks.bmp"] = bmp(32, 3, np.concatenate([bgr[:, :, :1], bgr[:, :, ::-1]], -1).tobytes(), header=108,
                            masks=struct.pack("<IIII", 0xFF00, 0xFF0000, 0xFF000000, 0))
others["32_masks.bmp"] = rgb
files["rle8.bmp"] = bmp(8, 1, runs(upside, 8), colours)
files["rle4.bmp"] = bmp(4, 2, runs(upside, 4), colours)

bits = (rgb[:, :, 0] > 128).astype(int)
files["text_bits.pbm"] = f"P1\n# a comment\n{W} {H}\n".encode() + "\n".join("".join(map(str, row)) for row in bits).encode()
files["bits.pbm"] = save(picture.convert("1"), "PPM")
files["text.pgm"] = f"P2 {W} {H} 15\n".encode() + " ".join(map(str, (rgb[:, :, 0] >> 4).ravel())).encode()
files["grey.pgm"] = save(grey, "PPM")
files["text.ppm"] = f"P3\n{W} {H} # a comment\n255\n".encode() + " ".join(map(str, rgb.ravel())).encode()
files["plain.ppm"] = save(picture, "PPM")
files["wide.ppm"] = f"P6 {W} {H} 65535\n".encode() + wide.astype(">u2").tobytes()


# --- what must be refused: files that claim 16000 x 16000 pixels (or 2^27 in a row), and a progressive JPEG of 150 scans ---------------------
def patched(data, at, form, *values):
    body = struct.pack(form, *values)
    return data[:at] + body + data[at + len(body):]


SIDE = 16000
claims = {}
plain = files["plain.jpg"]
claims["jpg"] = patched(plain, plain.index(b"\xff\xc0") + 5, ">HH", SIDE, SIDE)
claims["png"] = png(SIDE, SIDE, 8, 2, 0, [[bytes(100)]])
claims["wide.png"] = png(1 << 27, 1, 16, 6, 0, [[bytes(100)]])
claims["tiff"] = tiff({**tiff_tags(3, 8, 2), 256: (3, [SIDE]), 257: (3, [SIDE]), 278: (3, [SIDE])}, [bytes(100)])
claims["webp"] = patched(files["lossless.webp"], 21, "<I", SIDE - 1 | SIDE - 1 << 14)
lossy = files["lossy.j2k"]
claims["j2k"] = patched(patched(lossy, 8, ">II", SIDE, SIDE), 24, ">II", SIDE, SIDE)
claims["jp2"] = patched(files["plain.jp2"], files["plain.jp2"].index(b"\xff\x4f\xff\x51") + 8, ">II", SIDE, SIDE)  # in tiles of 21 x 13
claims["24.bmp"] = patched(files["24.bmp"], 18, "<ii", SIDE, SIDE)
claims["rle8.bmp"] = patched(files["rle8.bmp"], 18, "<ii", SIDE, SIDE)
claims["ppm"] = f"P6 {SIDE} {SIDE} 255\n".encode() + bytes(100)


def segment(marker, body):
    return bytes([255, marker]) + struct.pack(">H", len(body) + 2) + body


def scan(components, first, last, bits):
    chosen = bytes([len(components)]) + b"".join(bytes([c, 0]) for c in components)
    return segment(0xDA, chosen + bytes([first, last, 0])) + bytes([bits])


def many_scans(count):
    """One block a component, every coefficient of which is 0, and of which each scan tells one."""
    tree = bytes([1] + [0] * 15 + [0])  # one code, 0, of one bit: no difference, or the end of the block
    head = segment(0xDB, bytes([0] + [1] * 64)) + segment(0xC2, bytes([8, 0, 8, 0, 8, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]))
    head += segment(0xC4, b"\x00" + tree) + segment(0xC4, b"\x10" + tree)
    coefficients = [(c, k) for k in range(1, 64) for c in (1, 2, 3)][:count - 1]
    return b"\xff\xd8" + head + scan([1, 2, 3], 0, 0, 0x1F) + b"".join(scan([c], k, k, 0x7F) for c, k in coefficients) + b"\xff\xd9"


def finely_cut(side):
    """JPEG 2000 of side x side pixels in code-blocks of one, in 200 bytes."""
    data = save(Image.new("RGB", (64, 64)), "JPEG2000", no_jp2=True)
    data = patched(patched(data, 8, ">II", side, side), 24, ">II", side, side)
    cod = data.index(b"\xff\x52")
    size, = struct.unpack_from(">H", data, cod + 2)
    levels = data[cod + 9]
    head = b"\xff\x52" + struct.pack(">H", size + levels + 1) + bytes([data[cod + 4] | 1]) + data[cod + 5:cod + 2 + size]
    return data[:cod] + head + b"\x11" * (levels + 1) + data[cod + 2 + size:]


files["scans.jpg"] = many_scans(90)
for kind, data in claims.items():
    (folder / f"claims.{kind}").write_bytes(data)
(folder / "finely_cut.j2k").write_bytes(finely_cut(1000))
(folder / "150_scans.jpg").write_bytes(many_scans(150))


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


lines = []
for name, data in sorted(files.items()):
    (folder / name).write_bytes(data)
    if name in others:
        image = Image.fromarray(others[name])
    else:
        image = Image.open(io.BytesIO(data))
    whole = image if image.mode == "RGB" else image.convert("RGB")
    lines.append(f"{name} {whole.width} {whole.height} {fnv(whole.tobytes()):016x} {fnv(image.convert('L').tobytes()):016x}\n")
(folder / "expected.txt").write_text("".join(lines))
