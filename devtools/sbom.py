#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes an SBOM of the command, as SPDX 2.3 in JSON, to standard output: the crates that are linked into it or
that build it, with versions, licences and checksums, and DPDK, whose static libraries are linked into the helper, or
into each of the helpers that are its arguments.
The same sources give the same bytes if SOURCE_DATE_EPOCH is set."""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib

COMMAND = "pmdscope"
TARGET = "x86_64-unknown-linux-gnu"


def cargo(*arguments):
    return output_of(os.environ.get("CARGO", "cargo"), *arguments)


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def spdx_id(name, version):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{name}-{version}")


def licence(expression):
    """Cargo once separated alternatives by a slash."""
    return re.sub(r"\s*/\s*", " OR ", expression) if expression else "NOASSERTION"


def checksums():
    """SHA-256 by name and version, of crates from a registry."""
    with open("Cargo.lock", "rb") as file:
        packages = tomllib.load(file)["package"]
    return {(package["name"], package["version"]): package.get("checksum") for package in packages}


def crates_of_command():
    """Name and version of all crates that are linked into it or build it. `cargo metadata` also has those of features
    that only tests enable."""
    tree = cargo("tree", "--locked", f"--package={COMMAND}", f"--target={TARGET}", "--edges=normal,build", "--prefix=none",
                 "--format={p}")
    return {tuple(line.split()[:2]) for line in tree.splitlines()}


def dependencies(metadata, wanted):
    """From the command: identifiers of packages, and (package, dependency, whether it only builds)."""
    crates = {package["id"]: (package["name"], "v" + package["version"]) for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [identifier for identifier in metadata["workspace_members"] if crates[identifier][0] == COMMAND]
    seen, edges = set(todo), set()
    while todo:
        identifier = todo.pop()
        for dependency in nodes[identifier]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]} - {"dev"}
            if not kinds or crates[dependency["pkg"]] not in wanted:
                continue
            edges.add((identifier, dependency["pkg"], None not in kinds))
            if dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    return seen, edges


def package_of(crate, hashes):
    name, version = crate["name"], crate["version"]
    from_registry = crate["source"] is not None
    package = {
        "SPDXID": spdx_id(name, version),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence(crate["license"]),
        "copyrightText": "NOASSERTION",
    }
    if from_registry:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": hashes[name, version]}]
        package["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                    "referenceLocator": f"pkg:cargo/{name}@{version}"}]
    return package


def dpdk_versions(helpers):
    """Of the helpers, or of the one that this tree builds."""
    said = [re.search(r"\(DPDK (.*)\)", output_of(helper, "--version")).group(1) for helper in helpers]
    return sorted(set(said)) or [output_of("pkg-config", "--modversion", "libdpdk").strip()]


def dpdk(version):
    return {
        "SPDXID": spdx_id("dpdk", version),
        "name": "dpdk",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "BSD-3-Clause",
        "copyrightText": "NOASSERTION",
        "comment": "static libraries, linked into a helper",
    }


def document(helpers):
    metadata = json.loads(cargo("metadata", "--locked", "--format-version=1", f"--filter-platform={TARGET}"))
    crates = {package["id"]: package for package in metadata["packages"]}
    hashes = checksums()
    seen, edges = dependencies(metadata, crates_of_command())
    refs = {identifier: spdx_id(crates[identifier]["name"], crates[identifier]["version"]) for identifier in seen}
    version = next(crates[identifier]["version"] for identifier in seen if crates[identifier]["name"] == COMMAND)
    root = spdx_id(COMMAND, version)
    linked = [dpdk(version) for version in dpdk_versions(helpers)]
    relationships = [("SPDXRef-DOCUMENT", "DESCRIBES", root)]
    relationships += [(root, "STATIC_LINK", package["SPDXID"]) for package in linked]
    for package, dependency, only_builds in edges:
        if only_builds:
            relationships.append((refs[dependency], "BUILD_DEPENDENCY_OF", refs[package]))
        else:
            relationships.append((refs[package], "DEPENDS_ON", refs[dependency]))
    packages = [package_of(crates[identifier], hashes) for identifier in seen] + linked
    packages.sort(key=lambda package: package["SPDXID"])
    content = json.dumps(packages, sort_keys=True).encode()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp())
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{COMMAND}-{version}",
        "documentNamespace": f"https://github.com/pmdscope/pmdscope/spdx/{version}-{hashlib.sha256(content).hexdigest()}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: pmdscope-devtools-sbom"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in sorted(relationships)
        ],
    }


if __name__ == "__main__":
    json.dump(document(sys.argv[1:]), sys.stdout, indent=1)
    print()
