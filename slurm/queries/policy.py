"""The associations (accounts) and qualities of service that apply to this user's jobs.

slurmctld reports them with the use of each limit (`scontrol show assoc_mgr`), even while the accounting daemon is down.
Only an account's default QOS, and a QOS's limits for a user without jobs, come from `sacctmgr`, with a short timeout.
"""

import os
import pwd
import re
from collections.abc import Iterable, Iterator

from slurm.profiles.profile import Profile
from slurm.queries.ask import Refused, Unreachable, ask

DEFAULT_QOS = "normal"
NAMES = ("UserName", "Account", "ParentAccount", "QOS")
PATIENCE = 3.0  # seconds for what is good to know, not needed

Record = dict[str, str]  # a paragraph of `scontrol show assoc_mgr`; its kind under 'kind'


def me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def records() -> list[Record]:
    """Return the records of `scontrol show assoc_mgr` about this user; none if SLURM keeps no accounts.

    Kinds: UserName, ClusterName (an association), QOS, and a User's or Account's share of a QOS. Names come without
    their numbers. Raises Unreachable, NoSlurm.
    """
    shown = ask("scontrol", "show", "assoc_mgr", f"users={me()}", "flags=users,assoc,qos").stdout
    found: list[Record] = []
    quality = section = ""
    for line in shown.splitlines():
        text, pairs = line.strip(), dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if pairs and not line.startswith(" "):
            found.append({"kind": next(iter(pairs))})
            quality = plain(pairs.get("QOS", ""))
        elif text in ("User Limits", "Account Limits"):  # of the QOS; below, in turn, whose they are and what they are
            section = text.removesuffix(" Limits")
        elif quality and text and not pairs:
            found.append({"kind": section, "QOS": quality, section: plain(text)})
        if found:
            found[-1] |= {key: plain(value) if key in NAMES else value for key, value in pairs.items()}
    return found


def plain(name: str) -> str:
    """Strip the number of a name: 'lab(3)' -> 'lab'."""
    return re.sub(r"\(\d+\)$", "", name)


def applying(profile: Profile) -> Iterator[tuple[str, Record]]:
    """Yield the records that apply to a job of this profile, each after a name such as 'account lab'."""
    known = records()
    account = profile.account or own_account(known)
    for record in known:
        if record["kind"] == "ClusterName" and record["UserName"] == me() and record["Account"] == account:
            yield f"account {account}", record
    if known:
        yield from above(known, account)
        for quality in qualities(profile, account):
            yield from within(known, quality)


def own_account(known: Iterable[Record]) -> str:
    return next((r.get("DefAccount", "") for r in known if r["kind"] == "UserName" and r["UserName"] == me()), "")


def accounts(known: Iterable[Record]) -> list[str]:
    """Return the accounts that this user may charge."""
    return sorted({r["Account"] for r in known if r["kind"] == "ClusterName" and r["UserName"] == me()})


def all_qualities(known: Iterable[Record]) -> list[str]:
    """Return the names of every QOS of the cluster."""
    return sorted({record["QOS"] for record in known if record["kind"] == "QOS"})


def above(known: Iterable[Record], account: str) -> Iterator[tuple[str, Record]]:
    """Yield the records of an account and of its parent accounts, up to the root."""
    accounts = {r["Account"]: r for r in known if r["kind"] == "ClusterName" and not r["UserName"]}
    while record := accounts.pop(account, None):
        yield f"account {account}", record
        account = record.get("ParentAccount", "")


def within(known: Iterable[Record], quality: str) -> Iterator[tuple[str, Record]]:
    """Yield the records of a QOS: the QOS, and the shares of this user and of accounts in it."""
    own = (me(), str(os.getuid()))
    mine = [record for record in known if record.get("QOS") == quality and record.get("User", me()) in own]
    yield from ((f"qos {quality}", record) for record in mine)
    if not any(record["kind"] == "User" for record in mine):
        for line in accounting("qos", f"name={quality}", "format=MaxSubmitJobsPerUser"):
            yield f"qos {quality}", {"kind": "User", "MaxSubmitJobsPU": f"{line}(0)"}


def qualities(profile: Profile, account: str) -> list[str]:
    """Return the names of the job's QOS, from profile or account, and of its partitions' QOS."""
    chosen = profile.qos
    if not chosen:
        asked = accounting("assoc", "where", f"user={me()}", f"account={account}", "format=DefaultQOS")
        chosen = next((line for line in asked if line), DEFAULT_QOS)
    shown = ask("scontrol", "--oneliner", "show", "partition").stdout.splitlines()
    partitions = [dict(word.partition("=")[::2] for word in line.split()) for line in shown]
    names = profile.partition.split(",") if profile.partition else []
    used = [p for p in partitions if p.get("PartitionName") in names or (not names and p.get("Default") == "YES")]
    return sorted({chosen} | {p.get("QoS", "N/A") for p in used} - {"N/A"})


def accounting(*words: str) -> list[str]:
    """Return the lines of `sacctmgr show`; none if the accounting is off or slow."""
    try:
        lines = ask("sacctmgr", "--noheader", "--parsable2", "show", *words, timeout=PATIENCE).stdout.splitlines()
    except (Unreachable, Refused):
        return []
    return [line for line in lines if " " not in line]  # a site's banner has blanks
