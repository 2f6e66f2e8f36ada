"""Digests of models: the same for the same files, and others after training."""

from __future__ import annotations

from pathlib import Path

from thothy_ai.engine.checkpoint.fingerprint import fingerprint

SIZE = 3_000_000


def test_a_digest_tells_weights_of_one_size_and_name_apart(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"id2label": {"0": "entailment"}}', encoding="utf-8")
    (folder / "README.md").write_text("A model.", encoding="utf-8")
    (folder / "index.json").symlink_to("nowhere")
    weights = folder / "model.safetensors"
    weights.write_bytes(b"w" * SIZE)
    first = fingerprint(folder)
    weights.write_bytes(b"w" * (SIZE // 2) + b"v" * (SIZE // 2))
    assert fingerprint(folder) != first
    weights.write_bytes(b"w" * SIZE)
    (folder / "README.md").write_text("A model, described.", encoding="utf-8")
    assert fingerprint(folder) == first == fingerprint(folder.rename(tmp_path / "moved"))
    (tmp_path / "moved" / "config.json").write_text('{"id2label": {"2": "entailment"}}', encoding="utf-8")
    assert fingerprint(tmp_path / "moved") != first


def test_a_file_s_name_does_not_matter(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    one.write_bytes(b"GGUF")
    other.write_bytes(b"GGUF")
    assert fingerprint(one) == fingerprint(other)
    other.write_bytes(b"GGUFs")
    assert fingerprint(one) != fingerprint(other)
