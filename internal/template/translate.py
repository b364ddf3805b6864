"""Translates the template from SAM to CloudFormation, as the service does after a deployment has uploaded the archives, and writes it
as JSON to stdout. It needs no account and no network."""

import json
import os
import re
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "eu-west-1")

from samtranslator.model.exceptions import InvalidDocumentException  # noqa: E402
from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402


class NoPolicies:
    """The names of AWS's own policies, of which the template uses none by name."""

    def load(self):
        return {}


def main(path):
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"(CodeUri: )dist/", r"\1s3://bucket/", f.read())
    try:
        out = transform(yaml_parse(text), {}, NoPolicies())
    except InvalidDocumentException as e:
        sys.exit("\n".join([e.message] + [c.message for c in e.causes]))
    json.dump(out, sys.stdout, indent=1)


main(sys.argv[1])
