"""Names of the Debian package graph and how its relations are called in the package list."""

from __future__ import annotations

PACKAGES_FILE = "packages.txt.xz"

PACKAGE, VIRTUAL, SOURCE, HOST, MAINTAINER, TAG = "package", "virtual", "source", "host", "maintainer", "tag"

#: Fields that name packages, and the relation each makes: to a package of the list, or to a name that is not.
PACKAGE_FIELDS = {
    "Depends": "depends",
    "Pre-Depends": "pre-depends",
    "Recommends": "recommends",
    "Suggests": "suggests",
    "Enhances": "enhances",
    "Breaks": "breaks",
    "Conflicts": "conflicts",
    "Replaces": "replaces",
    "Provides": "provides",
}
BUILT_FROM = (PACKAGE, "built-from", SOURCE)
BUILT_USING = (PACKAGE, "built-using", SOURCE)
MAINTAINED_BY = (PACKAGE, "maintained-by", MAINTAINER)
HOSTED_AT = (PACKAGE, "hosted-at", HOST)
TAGGED = (PACKAGE, "tagged", TAG)
