"""Trials on many cores give what they give on one."""

from expost.experiments.experiment_report import run_trials


def test_processes_change_no_result_and_every_job_is_told_of() -> None:
    jobs, told = [(base, 2) for base in range(8)], []

    results = sorted(run_trials(pow, jobs, label="squares", workers=2, progress=lambda *each: told.append(each)))

    assert results == [base**2 for base in range(8)]
    assert told == [(done, 8, "squares") for done in range(1, 9)]
