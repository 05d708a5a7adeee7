import pytest

from fepflow.checks.base import BaseCheck
from fepflow.checks.contains import ContainsCheck
from fepflow.checks.registry import (
    CHECKS,
    find_check,
    get_latest_version,
    list_checks,
    list_versions,
    our_checks,
    register,
    source_hash,
)
from fepflow.errors import CheckArgumentsError


def registered(check_type="mine", version="1.0.0", name="Mine"):
    return register(check_type, version)(type(name, (BaseCheck,), {"__module__": "somebody.elses"}))


def test_the_checks_of_the_specification_are_there():
    assert {"exact_match", "contains", "regex", "threshold"} <= set(list_checks())
    assert list_versions("contains") == ["1.0.0"]
    assert find_check("contains") is ContainsCheck


def test_every_check_says_its_own_type_and_version():
    for name in CHECKS:
        for check_class in our_checks(name):
            assert check_class.check_type == name
            assert check_class.check_version in list_versions(name)


def test_versions_are_ordered_as_numbers():
    for version in ("1.10.0", "1.9.0", "1.2.0"):
        registered(version=version, name="V" + version)
    assert list_versions("mine") == ["1.2.0", "1.9.0", "1.10.0"]
    assert get_latest_version("mine") == "1.10.0"
    assert find_check("mine").check_version == "1.10.0"


def test_versions_are_ordered_as_semantic_versioning_has_it():
    # The example of Semantic Versioning 2.0.0, 11; Python's own order of versions is another one.
    ordered = ["alpha", "alpha.1", "alpha.beta", "beta", "beta.2", "beta.11", "rc.1"]
    versions = ["1.0.0-1", *(f"1.0.0-{name}" for name in ordered), "1.0.0", f"{'9' * 5_000}.0.0"]
    for version in reversed(versions):
        registered(version=version, name="V" + version)
    assert list_versions("mine") == versions
    assert find_check("mine", "1.0.0-rc.2+build.7").check_version == "1.0.0"
    assert find_check("mine", "1.0.0+build.7").check_version == "1.0.0", "what was built does not count"


def test_a_version_is_met_exactly_or_by_the_newest_of_its_major():
    for asked, found in [
        ("1.0.0", "1.0.0"),
        ("1.0.1", "1.3.0"),
        ("1.2.0", "1.2.0"),
        ("1.2.1", "1.3.0"),
        ("2.0.0", "2.0.0"),
        (None, "2.0.0"),
    ]:
        for version in ("1.0.0", "1.3.0", "1.2.0", "2.0.0"):
            registered(version=version, name="V" + version)
        assert find_check("mine", asked).check_version == found


@pytest.mark.parametrize("asked", ["1.3.0", "2.0.1", "3.0.0", "0.9.0"])
def test_a_version_that_nothing_meets_is_refused_with_the_list(asked):
    for version in ("1.2.0", "2.0.0"):
        registered(version=version, name="V" + version)
    with pytest.raises(CheckArgumentsError, match=rf"no version {asked} \(there is 1\.2\.0, 2\.0\.0\)"):
        find_check("mine", asked)


def test_the_error_for_an_unknown_type_names_the_nearest_one():
    with pytest.raises(CheckArgumentsError, match="did you mean exact_match"):
        find_check("exact_mach")


def test_the_error_for_an_unlike_type_lists_all_types():
    with pytest.raises(CheckArgumentsError, match=r"known are .*classification, .*contains"):
        find_check("vibes")


def test_the_same_class_may_register_again():
    first, second = registered(), registered()
    assert first is not second
    assert find_check("mine") is second


def test_another_class_may_not_take_a_name_that_is_taken():
    registered()
    with pytest.raises(CheckArgumentsError, match=r"mine 1\.0\.0 is registered already, by somebody\.elses"):
        registered(name="Other")
    with pytest.raises(CheckArgumentsError, match=r"contains 1\.0\.0 is registered already"):
        registered("contains", name="MyContains")


def test_a_newer_version_of_ours_may_be_registered():
    newer = registered("contains", "1.1.0", "ContainsCheck")
    assert find_check("contains") is newer
    assert find_check("contains", "1.0.0") is ContainsCheck


@pytest.mark.parametrize("version", ["one", "1.0.x", ""])
def test_an_invalid_version_is_refused(version):
    with pytest.raises(CheckArgumentsError, match="is not a semantic version"):
        registered(version=version)


def test_a_user_check_has_a_source_hash_and_a_built_in_one_has_none():
    class Mine(BaseCheck):
        """First."""

    class Other(BaseCheck):
        """Second."""

    assert source_hash(ContainsCheck) is None
    assert source_hash(Mine) != source_hash(Other)
    assert len(source_hash(Mine)) == 64


@pytest.mark.parametrize("ask", [get_latest_version, find_check])
def test_an_unknown_type_has_no_version(ask):
    assert list_versions("vibes") == []
    with pytest.raises(CheckArgumentsError, match="there is no check type vibes"):
        ask("vibes")


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0-"])
def test_a_version_outside_of_the_format_is_refused(version: str) -> None:
    with pytest.raises(CheckArgumentsError, match="not a semantic version"):
        register("versioned", version)


def test_a_class_of_the_same_name_from_elsewhere_is_another_one() -> None:
    with pytest.raises(CheckArgumentsError, match=r"contains 1\.0\.0 is registered already"):
        register("contains", "1.0.0")(type("ContainsCheck", (BaseCheck,), {"__module__": "somebody.elses"}))
