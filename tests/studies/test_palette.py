"""Colours that stay apart for those who see two kinds of light: Machado, Oliveira and Fernandes (2009), severity 1."""

from itertools import combinations

import numpy as np
import pytest

from kernattn.studies import _palette as palette

SIGHTS = {  # what a linear sRGB colour looks like
    "common": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
APART = 12  # in CIELAB, where a difference of about 2 is just seen
HUES = ("BLUE", "SKY", "VERMILION", "ORANGE", "GREEN", "PINK", "WINE", "OLIVE")


def lab(colour, sight):
    """CIELAB coordinates of a hexadecimal sRGB colour, as somebody sees it; white is that of the screen."""
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(SIGHTS[sight]) @ linear, 0, 1)
    ratio = XYZ @ seen / XYZ.sum(axis=1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one, other, sight):
    return float(np.linalg.norm(lab(one, sight) - lab(other, sight)))


def test_the_oracle_sees_as_they_do():
    """Greys stay grey; white and black are 100 apart; a red that is as dark as a grey is that grey to deuteranopes."""
    for sight in SIGHTS:
        assert np.abs(lab("#808080", sight)[1:]).max() < 0.01
        assert distance("#ffffff", "#000000", sight) == pytest.approx(100, abs=0.01)
    assert distance(palette.WINE, "#4d4d4d", "common") > 40
    assert distance(palette.WINE, "#4d4d4d", "deuteranopia") < 3


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_stay_apart(sight):
    """From each other, so that lines without markers are told apart too, and from uniform attention's."""
    colours = [palette.UNIFORM["color"], *(getattr(palette, hue) for hue in HUES)]
    for one, other in combinations(colours, 2):
        assert distance(one, other, sight) > APART, (one, other)


def test_no_two_looks_are_alike():
    """Of one marker and one line, colours differ, and are those that stay apart."""
    hues = {getattr(palette, hue) for hue in HUES}
    for table in (palette.COLOURS, palette.ARRANGEMENTS, dict(enumerate(palette.SPARE))):
        looks = list(table.values())
        assert len(set(looks)) == len(looks)
        for colour, *shape in looks:
            alike = [other for other, *its in looks if its == shape]
            assert alike == [colour] or hues.issuperset(alike)
