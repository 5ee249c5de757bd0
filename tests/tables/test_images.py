"""Images in folders: which are read, which are named as damaged, and what features say."""

import base64
import io
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression

from untuned.tables import images, patches
from untuned.util import memory


def picture(kind, seed, size=(32, 32)):
    """Stripes across or down, of random colours and place."""
    rng = np.random.default_rng(seed)
    across, down = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    wave = np.sin(0.8 * (down if kind == "across" else across) + rng.uniform(0, 6))
    colour = rng.uniform(40, 110, 3)
    noise = rng.normal(0, 12, (*wave.shape, 3))
    return np.clip(128 + wave[..., None] * colour + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes of forty images, of different sizes and formats."""
    root = tmp_path_factory.mktemp("photos")
    for kind in ("across", "down"):
        (root / kind).mkdir()
        for seed in range(40):
            size = (32, 32) if seed % 3 else (64, 48)
            name = f"{seed:02d}.{'png' if seed % 2 else 'jpg'}"
            Image.fromarray(picture(kind, seed, size)).save(root / kind / name)
    return root


def test_images_are_read_in_the_order_of_their_paths(folder):
    found = images.read(folder, "class")
    assert found.squares.shape == (80, images.SIDE, images.SIDE, 3)
    assert found.frame["class"].tolist() == ["across"] * 40 + ["down"] * 40
    assert found.frame["image"].iloc[0] == "across/00.jpg"
    assert found.frame["sha256"].nunique() == 80
    assert found.damaged == []
    small = found.frame["image"].tolist().index("down/01.png")
    np.testing.assert_array_equal(found.squares[small], picture("down", 1))


@pytest.mark.long
def test_features_tell_stripes_apart(folder):
    """No line in pixel space does: the stripes are anywhere."""
    found = images.read(folder, "class")
    X, dictionary = patches.of_images(found.squares, seed=0)
    assert X.shape == (80, 4 * len(dictionary.typical))
    assert X.min() >= 0
    assert (X == 0).mean() < 0.5
    train = np.arange(80) % 2 == 0
    label = found.frame["class"].to_numpy()
    model = LogisticRegression(C=0.1, max_iter=500).fit(X[train] / X.std(), label[train])
    assert model.score(X[~train] / X.std(), label[~train]) > 0.9


@pytest.mark.long
def test_features_are_those_of_the_formula(folder):
    """One image by loops over its patches and the typical ones."""
    found = images.read(folder, "class")
    _, dictionary = patches.of_images(found.squares[:20], seed=0)
    fast = patches.features(found.squares[:1], dictionary)[0]
    square = found.squares[0].astype(float)
    count, last = len(dictionary.typical), images.SIDE - patches.PATCH
    places = range(0, last + 1, patches.STRIDE)
    middle = (len(places) + 1) // 2
    slow = np.zeros((4, count))
    for row, top in enumerate(places):
        for column, left in enumerate(places):
            z = square[top : top + patches.PATCH, left : left + patches.PATCH].ravel()
            z = (z - z.mean()) / np.sqrt(z.var() + patches.CONTRAST)
            z = (z - dictionary.mean) @ dictionary.whitening
            distance = np.linalg.norm(z - dictionary.typical, axis=1)
            quarter = 2 * (row >= middle) + (column >= middle)
            slow[quarter] += np.maximum(0, distance.mean() - distance)
    np.testing.assert_allclose(fast, slow.ravel(), rtol=1e-3, atol=1e-3)


@pytest.mark.long
def test_a_dictionary_is_saved_as_arrays(folder, tmp_path):
    found = images.read(folder, "class")
    X, dictionary = patches.of_images(found.squares[:20], seed=0)
    patches.save(tmp_path / "dictionary.npz", dictionary)
    again = patches.load(tmp_path / "dictionary.npz")
    np.testing.assert_allclose(patches.features(found.squares[:20], again), X, rtol=1e-5)


def encoded(mode, kind, **options):
    written = io.BytesIO()
    shades = picture("down", 0)
    image = Image.fromarray(shades)
    if mode == "I;16":
        image = Image.fromarray(shades[..., 0].astype(np.uint16) * 256)
    elif mode != "RGB":
        image = image.convert(mode)
    image.save(written, kind, **options)
    return written.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_every_kind_of_png_becomes_colours(mode):
    square = images._square(encoded(mode, "PNG"))
    assert square.shape == (images.SIDE, images.SIDE, 3)
    assert square.std() > 20


def test_glass_is_seen_on_white():
    written = io.BytesIO()
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(written, "PNG")
    assert images._square(written.getvalue()).min() == 255


def test_a_camera_held_sideways():
    written = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter to see it upright
    Image.fromarray(picture("down", 3, (64, 32))).save(written, "JPEG", exif=exif)
    assert images.opened(written.getvalue(), 64).size == (32, 64)


def spoilt(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "photos")
    return tmp_path / "photos"


def test_damaged_images_are_named_and_left_out(folder, tmp_path):
    root = spoilt(folder, tmp_path)
    path = root / "across" / "01.png"
    path.write_bytes(path.read_bytes()[:300])
    (root / "down" / "02.jpg").write_text("not an image at all")
    (root / "down" / "Thumbs.db").write_text("of a file manager")
    (root / ".git").mkdir()
    found = images.read(root, "class")
    assert found.damaged == ["across/01.png (damaged)", "down/02.jpg (neither PNG nor JPEG)"]
    assert len(found.frame) == len(found.squares) == 78


def test_an_image_whose_name_no_table_can_hold_is_left_out(folder, tmp_path):
    root = spoilt(folder, tmp_path)
    (root / "down" / "02.jpg").rename(root / "down" / os.fsdecode(b"caf\xe9.jpg"))
    found = images.read(root, "class")
    assert found.damaged == ["down/caf\udce9.jpg (its name is not UTF-8)"]
    assert len(found.frame) == 79


@pytest.mark.parametrize("label", images.OURS)
def test_a_label_is_not_called_as_a_column_of_ours(folder, label):
    with pytest.raises(ValueError, match=f"--label {label} is what a column of every table"):
        images.read(folder, label)


def test_an_image_that_claims_to_be_huge_is_left_out(folder, tmp_path, monkeypatch):
    root = spoilt(folder, tmp_path)
    monkeypatch.setattr(images, "MOST_PIXELS", 2_000)
    found = images.read(root, "class")
    assert len(found.damaged) == 28
    assert found.damaged[0] == "across/00.jpg (too large)"
    # Also where memory is short, of pixels or of bytes.
    monkeypatch.setattr(images, "MOST_PIXELS", 2**27)
    monkeypatch.setattr(memory, "available", lambda: images.MOST_BYTES * 2_000)
    assert images.read(root, "class").damaged == found.damaged
    (root / "across" / "00.jpg").write_bytes(bytes(images.MOST_BYTES * 1_001))
    assert images.read(root, "class").damaged == found.damaged


@pytest.mark.parametrize("kind", ["pipe", "device", "nowhere"])
def test_an_image_that_is_no_file_is_left_out_unread(folder, tmp_path, kind):
    """A pipe waits for ever, and a device never ends."""
    root = spoilt(folder, tmp_path)
    place = root / "across" / "00.jpg"
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero" if kind == "device" else "nothing")
    found = images.read(root, "class")
    assert found.damaged == ["across/00.jpg (a pipe, a device or a broken link)"]
    assert len(found.frame) == 79


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("flat", "has no folders in it; expected one folder for each class"),
        ("one class", "has one class only"),
        ("text", "is no image by its name"),
        ("damaged class", "has no image that can be read"),
    ],
)
def test_folders_that_are_no_classes_of_images_are_refused(spoil, words, folder, tmp_path):
    root = spoilt(folder, tmp_path)
    if spoil == "flat":
        root = root / "across"
    elif spoil == "one class":
        shutil.rmtree(root / "down")
    elif spoil == "text":
        (root / "down" / "notes.txt").write_text("hello")
    else:
        for path in (root / "down").iterdir():
            path.write_text("hello")
    with pytest.raises(ValueError, match=words) as caught:
        images.read(root, "class")
    assert "\n" not in str(caught.value)


def test_thumbnails_are_small_and_inside_the_page(folder, tmp_path):
    shown = images.thumbnails(folder, ["across/00.jpg", "across/01.png"])["picture"]
    assert shown[0].startswith("data:image/png;base64,")  # 64 pixels: exactly
    assert len(shown[0]) < 30_000
    Image.fromarray(picture("down", 1, (900, 700))).save(tmp_path / "large.jpg")
    large = images.thumbnails(tmp_path, ["large.jpg"])["picture"][0]
    kind, _, content = large.partition(",")
    assert kind == "data:image/jpeg;base64"
    assert max(Image.open(io.BytesIO(base64.b64decode(content))).size) == images.SIDES[0][1]
