"""Covers tests/bill.py: licences of a bill, and sums that a stranger can check."""

import subprocess
from pathlib import Path

import pytest
from tests.bill import KEY, NAMESPACE, sign, stated


def test_a_bill_has_every_licence_and_no_folder_of_this_machine() -> None:
    here = {"url": "file:///home/ada/x.whl"}
    known = {"name": "a", "licenses": [{"license": {"id": "MIT"}}], "externalReferences": [here]}
    unsaid = {"name": "agent-client-protocol", "externalReferences": [{"url": "https://example.org"}]}
    done = stated({"components": [known, unsaid], "version": 1})
    assert done["components"][0]["externalReferences"] == [] and done["version"] == 1
    assert done["components"][1]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    with pytest.raises(AssertionError, match=r"no licence is known of \['b'\]"):
        stated({"components": [{"name": "b"}]})


def test_sums_are_signed_and_a_changed_file_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, key = tmp_path / "dist", tmp_path / "key"
    folder.mkdir()
    (folder / "x.whl").write_bytes(b"wheel")
    monkeypatch.delenv(KEY, raising=False)
    assert "not signed" in sign(folder) and not (folder / "SHA256SUMS.sig").exists()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    monkeypatch.setenv(KEY, str(key))
    sign(folder)
    signers = tmp_path / "signers"
    signers.write_text("maintainers " + key.with_suffix(".pub").read_text())
    who = ["-f", str(signers), "-I", "maintainers", "-n", NAMESPACE, "-s", str(folder / "SHA256SUMS.sig")]
    sums = (folder / "SHA256SUMS").read_bytes()

    def verified(sums: bytes) -> bool:
        done = subprocess.run(
            ["ssh-keygen", "-Y", "verify", *who], input=sums, capture_output=True, check=False
        )
        return done.returncode == 0

    assert verified(sums) and not verified(sums.replace(b"x.whl", b"y.whl"))
    check = ["sha256sum", "--check", "--status", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, check=False).returncode == 0
    (folder / "x.whl").write_bytes(b"changed")
    assert subprocess.run(check, cwd=folder, check=False).returncode == 1
