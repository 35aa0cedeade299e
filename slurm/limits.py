"""The limits that apply to this user's jobs, and the accounts and qualities of service (QOS) that set them.

slurmctld reports them, with the current usage of each limit, to `scontrol show assoc_mgr`. It does so even while
slurmdbd is down. Two facts come from `sacctmgr`, with a short timeout. They are this user's default QOS in an account,
and the limits of a QOS for a user without jobs. Unless a docstring says otherwise, all functions that ask SLURM raise
the errors of `ask`.
"""

import os
import pwd
import re
from collections.abc import Iterable, Iterator

from slurm.ask import Refused, Unreachable, ask
from slurm.profile import Profile

FULL = re.compile(r"MaxSubmitJob|GrpSubmitJob")  # a refusal because this user has too many jobs in the queue
DEFAULT_QOS = "normal"
NAMES = ("UserName", "Account", "ParentAccount", "QOS")
PATIENCE = 3.0  # seconds for information that is useful but not needed

Record = dict[str, str]  # a paragraph of `scontrol show assoc_mgr`; its kind under 'kind'


# -- accounts and qualities of service ---------------------------------------------------------------------------------


def user_name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def records() -> list[Record]:
    """Return the records about this user in `scontrol show assoc_mgr`.

    The list is empty if SLURM has no accounting. The kind of a record is UserName, ClusterName (an association) or QOS.
    Limits within a QOS are of kind User or Account. Names in the records lack the number that SLURM appends.
    """
    shown = ask("scontrol", "show", "assoc_mgr", f"users={user_name()}", "flags=users,assoc,qos").stdout
    found: list[Record] = []
    quality = section = ""
    for line in shown.splitlines():
        text, pairs = line.strip(), dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if pairs and not line.startswith(" "):
            found.append({"kind": next(iter(pairs))})
            quality = plain_name(pairs.get("QOS", ""))
        elif text in ("User Limits", "Account Limits"):  # within the QOS: each name is followed by its limits
            section = text.removesuffix(" Limits")
        elif quality and text and not pairs:
            found.append({"kind": section, "QOS": quality, section: plain_name(text)})
        if found:
            found[-1] |= {key: plain_name(value) if key in NAMES else value for key, value in pairs.items()}
    return found


def plain_name(name: str) -> str:
    """Return a name without the number that SLURM appends: 'lab' for 'lab(3)'."""
    return re.sub(r"\(\d+\)$", "", name)


def applying_records(profile: Profile) -> Iterator[tuple[str, Record]]:
    """Yield (description, record), such as ('account lab', ...), for each record that applies to a job of `profile`."""
    known = records()
    account = profile.account or own_account(known)
    for record in known:
        if record["kind"] == "ClusterName" and record["UserName"] == user_name() and record["Account"] == account:
            yield f"account {account}", record
    if known:
        yield from account_records(known, account)
        for quality in qualities(profile, account):
            yield from qos_records(known, quality)


def own_account(known: Iterable[Record]) -> str:
    return next(
        (r.get("DefAccount", "") for r in known if r["kind"] == "UserName" and r["UserName"] == user_name()), ""
    )


def accounts(known: Iterable[Record]) -> list[str]:
    """Return the names of the accounts to which this user may charge jobs."""
    return sorted({r["Account"] for r in known if r["kind"] == "ClusterName" and r["UserName"] == user_name()})


def all_qualities(known: Iterable[Record]) -> list[str]:
    return sorted({record["QOS"] for record in known if record["kind"] == "QOS"})


def account_records(known: Iterable[Record], account: str) -> Iterator[tuple[str, Record]]:
    """Yield (description, record) for an account and each of its parents, up to the root."""
    accounts = {r["Account"]: r for r in known if r["kind"] == "ClusterName" and not r["UserName"]}
    while record := accounts.pop(account, None):
        yield f"account {account}", record
        account = record.get("ParentAccount", "")


def qos_records(known: Iterable[Record], quality: str) -> Iterator[tuple[str, Record]]:
    """Yield (description, record) for a QOS, and for this user and accounts within it.

    sacctmgr is asked for this user's limit if `known` lacks it.
    """
    own = (user_name(), str(os.getuid()))
    mine = [record for record in known if record.get("QOS") == quality and record.get("User", user_name()) in own]
    yield from ((f"qos {quality}", record) for record in mine)
    if not any(record["kind"] == "User" for record in mine):
        for line in accounting("qos", f"name={quality}", "format=MaxSubmitJobsPerUser"):
            yield f"qos {quality}", {"kind": "User", "MaxSubmitJobsPU": f"{line}(0)"}


def qualities(profile: Profile, account: str) -> list[str]:
    """Return the sorted QOS that apply to a job: the QOS of its partitions and of the profile.

    Without the latter, the user's default in `account` counts, or else `normal`.
    """
    chosen = profile.qos
    if not chosen:
        asked = accounting("assoc", "where", f"user={user_name()}", f"account={account}", "format=DefaultQOS")
        chosen = next((line for line in asked if line), DEFAULT_QOS)
    shown = ask("scontrol", "--oneliner", "show", "partition").stdout.splitlines()
    partitions = [dict(word.partition("=")[::2] for word in line.split()) for line in shown]
    names = profile.partition.split(",") if profile.partition else []
    used = [p for p in partitions if p.get("PartitionName") in names or (not names and p.get("Default") == "YES")]
    return sorted({chosen} | {p.get("QoS", "N/A") for p in used} - {"N/A"})


def accounting(*words: str) -> list[str]:
    """Return the lines without blanks that `sacctmgr show` prints, or [] if sacctmgr refuses or does not answer."""
    try:
        lines = ask("sacctmgr", "--noheader", "--parsable2", "show", *words, timeout=PATIENCE).stdout.splitlines()
    except (Unreachable, Refused):
        return []
    return [line for line in lines if " " not in line]  # a site's banner has blanks
