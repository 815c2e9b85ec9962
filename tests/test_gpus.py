import pynvml
import pytest

from tuner import gpus


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert gpus.find_gpus() == ()
    assert gpus.used_memory_gb(("GPU-a",)) == ()


@pytest.mark.gpu
def test_gpus_are_found_by_uuid_with_their_memory() -> None:
    found = gpus.find_gpus()
    if not found:
        pytest.skip("no GPU here")
    assert all(gpu.uuid.startswith("GPU-") for gpu in found)
    assert all(gb > 0 for gb in gpus.used_memory_gb(tuple(gpu.uuid for gpu in found)))
