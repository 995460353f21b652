"""The workers of a run by the process ids that the host knows them by."""

from nginx_tune.documents.measured_class import ClassMeasurement, WorkerShare
from nginx_tune.documents.measurement import Measurement
from nginx_tune.measure.proof.workers import with_imbalance, with_worker_ids


def test_requests_and_connections_of_a_worker_stand_under_one_id() -> None:
    shares = {"3": WorkerShare(requests=5, connections=20), "4": WorkerShare(requests=5)}
    seen = ClassMeasurement(workers={"3": 5, "4": 5}, worker_shares=shares)
    measured = Measurement(duration_seconds=1.0, classes={"hot": seen})
    known = with_worker_ids(measured, {"3": "103", "4": "104"})
    item = with_imbalance(known, [103, 104]).classes["hot"]
    assert item.workers == {"103": 5, "104": 5}
    assert list(item.worker_shares) == ["103", "104"]
    assert item.worker_connections is not None
    assert item.worker_connections.workers == 2
