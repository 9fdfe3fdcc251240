"""From words to frames: eSpeak NG's voice, additive noise, log-mel energies."""

from __future__ import annotations

import subprocess
import wave
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from phonemes import folded

MELS = 40


def spoken(text: str, voice: str, speed: int) -> tuple[NDArray[np.float64], int, list[int]]:
    """Return what eSpeak NG says: samples in [-1, 1], their rate, and the phonemes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        command = ["espeak-ng", "-v", f"en-us+{voice}", "-s", str(speed), "-x", "--sep=_", "-w", str(path), text]
        try:
            mnemonics = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        except FileNotFoundError:
            raise SystemExit("the corpus needs the program espeak-ng (apt install espeak-ng)") from None
        with wave.open(str(path)) as file:
            rate, samples = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return samples / 2**15, rate, folded(mnemonics)


def noisy(
    samples: NDArray[np.float64], decibels: float, colour: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return samples plus Gaussian noise of power spectrum f^-colour, `decibels` below them in power."""
    spectrum = np.fft.rfft(rng.standard_normal(len(samples)))
    noise = np.fft.irfft(spectrum * np.maximum(np.arange(len(spectrum)), 1.0) ** (-colour / 2), len(samples))
    return samples + noise * np.sqrt(np.mean(samples**2) / np.mean(noise**2) / 10 ** (decibels / 10))


def log_mel(samples: NDArray[np.float64], rate: int) -> NDArray[np.float32]:
    """Return log energies in 40 mel bands (n, 40) of windows of 25 ms, every 10 ms; bands have mean 0, variance 1."""
    size, hop = round(0.025 * rate), round(0.01 * rate)
    length = 1 << (size - 1).bit_length()
    windows = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop] * np.hanning(size)
    power = np.abs(np.fft.rfft(windows, length)) ** 2
    frames = np.log(power @ mel_bands(rate, length).T + 1e-10)
    return ((frames - frames.mean(axis=0)) / frames.std(axis=0)).astype(np.float32)


def mel_bands(rate: int, length: int, low: float = 50.0, high: float = 8000.0) -> NDArray[np.float64]:
    """Return triangles (40, length // 2 + 1) evenly apart in mel, 2595 log10(1 + f / 700)."""
    mel = np.linspace(*(2595 * np.log10(1 + np.array([low, high]) / 700)), MELS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    frequencies = np.fft.rfftfreq(length, 1 / rate)
    left, centre, right = (edges[i : i + MELS, None] for i in range(3))
    return np.clip(
        np.minimum((frequencies - left) / (centre - left), (right - frequencies) / (right - centre)), 0, None
    )
