"""What an endpoint's errors call the settings that decide how it is called: as whoever gave its address knows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SettingNames:
    """`url` is the setting with the address; the others are None where only the address can be given."""

    url: str
    headers: str | None = None
    max_bytes: str | None = None

    @classmethod
    def of_suite(cls, section: str) -> SettingNames:
        """Those of a section of a suite, such as `target.http`."""
        return cls(f"{section}.url", f"{section}.headers", f"{section}.max_bytes")

    def advice(self, status: int) -> str:
        """What to look at after a response with this status, which is no success; empty where nothing is known."""
        match status:
            case 401 | 403:
                return (
                    f"check the credentials in {self.headers}" if self.headers else "it is called without credentials"
                )
            case 404:
                return f"check {self.url}"
            case 405:
                return f"check {self.url} and the method" if self.headers else f"check {self.url}: it gets POST"
        return ""


HTTP = SettingNames.of_suite("target.http")
ECP = SettingNames.of_suite("target.ecp")
EVALUATIONS_API = SettingNames("agent_endpoint_url")
"""The contract through which addresses are given over the network."""
