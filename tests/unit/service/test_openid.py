"""Signing in through an organisation: who is let in, and that no wrong answer of a provider or of an attacker is."""

import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from tests.login_provider import CLIENT, SECRET, LoginProvider
from tests.served import Served, write_people

from expost.core import InvalidRequest
from expost.service import ServiceSettings
from expost.service.openid_provider import OpenIdProvider

OPENID = '[openid]\nissuer = "http://127.0.0.1:9"\nclient_id = "{client}"\naddress = "http://127.0.0.1:8000"\n'


class Organisation:
    """A service whose people sign in with a provider, and a browser."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EXPOST_OPENID_SECRET", SECRET)
        self.provider = provider = LoginProvider()
        client = provider.client()
        make = OpenIdProvider.__init__

        def without_network(self: Any, settings: Any, **_: Any) -> None:
            make(self, settings, http=client)

        monkeypatch.setattr(OpenIdProvider, "__init__", without_network)
        path = write_people(folder)
        path.write_text(path.read_text(encoding="utf-8") + OPENID.format(client=CLIENT), encoding="utf-8")
        self.served, self._provided = Served(path), client

    def begin(self, dataset: str = "") -> str:
        """Begin to sign in, and return the address that the provider sends the browser to."""
        page = self.served.http.get(f"/login/openid?dataset={dataset}", follow_redirects=False)
        assert page.status_code == 303, page.text
        back = self._provided.get(page.headers["location"])
        return str(back.headers["location"]).removeprefix("http://127.0.0.1:8000")

    def sign_in(self, dataset: str = "") -> Any:
        return self.served.http.get(self.begin(dataset), follow_redirects=False)


@pytest.fixture
def organisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Organisation(tmp_path, monkeypatch)
    with made.served.http:
        yield made


def test_a_person_of_the_organisation_gets_what_the_token_of_that_name_allows(organisation: Organisation) -> None:
    assert "Sign in with your organisation" in organisation.served.http.get("/login").text
    response = organisation.sign_in()

    assert response.status_code == 200 and 'content="0;url=/"' in response.text
    assert "<strong>ann</strong>, analyst" in organisation.served.http.get("/").text
    assert organisation.served.http.get("/owner").status_code == 403
    flags = [each.lower() for each in response.headers.get_list("set-cookie")]
    assert all("httponly" in each for each in flags if "max-age=0" not in each)
    assert any("samesite=strict" in each and each.startswith("expost_session=") for each in flags)
    line = organisation.served.curator.store.read_log()[-1]
    assert (line.actor, line.action) == ("analyst:ann", "sign in")


TWISTS = [
    *("other state", "other provider", "refused", "no token", "other issuer", "other audience", "expired"),
    *("other nonce", "no nonce", "unverified", "unverified text", "no name", "other party", "no signature"),
    *("shared key", "foreign key", "changed"),
]


def test_a_wrong_answer_of_the_provider_lets_nobody_in(organisation: Organisation) -> None:
    for twist in TWISTS:
        organisation.provider.twist = twist
        response = organisation.sign_in()

        assert response.status_code == 403 and "expost_session" not in str(response.headers.get("set-cookie")), twist
        assert "Begin again" in response.text
        assert not {"evil", "joserfc", "Traceback", "authlib", SECRET} & set(response.text.split())
        assert organisation.served.http.get("/", follow_redirects=False).headers["location"] == "/login"


@pytest.mark.parametrize("twist", ["other issuer described", "plain addresses"])
def test_a_description_of_another_provider_is_not_followed(organisation: Organisation, twist: str) -> None:
    organisation.provider.twist = twist
    response = organisation.served.http.get("/login/openid", follow_redirects=False)

    assert response.status_code == 503 and "location" not in response.headers


def test_a_code_works_once_and_in_the_browser_that_asked_for_it(organisation: Organisation) -> None:
    address = organisation.begin()
    cookie = organisation.served.http.cookies["expost_sign_in"]
    organisation.served.http.cookies.clear()
    stolen = organisation.served.http.get(address, follow_redirects=False)
    assert stolen.status_code == 403
    headers = {"cookie": f"expost_sign_in={cookie}"}
    assert organisation.served.http.get(address, headers=headers).status_code == 200
    organisation.served.http.cookies.clear()
    assert organisation.served.http.get(address, headers=headers).status_code == 403


def test_a_made_up_cookie_begins_nothing(organisation: Organisation) -> None:
    for cookie in ("", "x", "gAAAAA" + "x" * 80, "é"):
        headers = {"cookie": f"expost_sign_in={cookie}".encode("latin-1")}
        response = organisation.served.http.get("/login/openid/back?code=1&state=2", headers=headers)

        assert response.status_code == 403 and "expired" in response.text


def test_a_person_without_a_token_or_with_a_revoked_one_is_not_let_in(organisation: Organisation) -> None:
    organisation.provider.person |= {"email": "somebody"}
    assert "Ask the owner" in organisation.sign_in().text
    organisation.provider.person |= {"email": "ann"}
    (token,) = organisation.served.curator.usable_tokens("ann")
    organisation.served.curator.revoke_token(token.token_id)

    assert organisation.sign_in().status_code == 403


def test_new_keys_of_the_provider_are_fetched_and_old_ones_remembered(organisation: Organisation) -> None:
    assert organisation.sign_in().status_code == organisation.sign_in().status_code == 200
    assert organisation.provider.asked == ["keys"]
    organisation.provider.change_key()

    assert organisation.sign_in().status_code == 200
    assert organisation.provider.asked == ["keys"] * 2


def test_a_provider_that_is_away_is_a_sentence(organisation: Organisation) -> None:
    address = organisation.begin()
    organisation.provider.app.router.routes.clear()
    response = organisation.served.http.get(address, follow_redirects=False)

    assert response.status_code == 403 and "was not accepted" in response.text


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('issuer = "http://login.example.org"', "openid.issuer with https"),
        ('issuer = ""', "openid.issuer as a text"),
        ("name_claim = 3", "openid.name_claim as a text"),
        ('secret = "x"', "Expected one of"),
    ],
)
def test_a_wrong_line_of_the_settings_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, part: str
) -> None:
    monkeypatch.setenv("EXPOST_OPENID_SECRET", SECRET)
    path = write_people(tmp_path)
    name = line.split(" ")[0]
    kept = [each for each in OPENID.format(client=CLIENT).splitlines() if not each.startswith(f"{name} ")]
    path.write_text(path.read_text(encoding="utf-8") + "\n".join([*kept, line]), encoding="utf-8")

    with pytest.raises(InvalidRequest, match=part):
        ServiceSettings.read(path)


def test_the_secret_is_in_the_environment_and_in_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXPOST_OPENID_SECRET", raising=False)
    path = write_people(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + OPENID.format(client=CLIENT), encoding="utf-8")
    with pytest.raises(InvalidRequest, match="EXPOST_OPENID_SECRET"):
        ServiceSettings.read(path)
    monkeypatch.setenv("EXPOST_OPENID_SECRET", SECRET)

    assert SECRET not in repr(ServiceSettings.read(path))
    page, cookie = OpenIdProvider(
        ServiceSettings.read(path).openid,
        http=LoginProvider().client(),  # type: ignore[arg-type]
    ).begin("people")
    assert SECRET not in urllib.parse.unquote(page) + cookie
