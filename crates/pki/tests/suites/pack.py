#!/usr/bin/env python3
"""Packs public suites of certificate paths for the test program `suites`.

    pack.py pkits FOLDER NAME       NIST's PKITS of 2011: FOLDER is PKITS_data, with `certs` and `smime`
    pack.py limbo FILE NAME         x509-limbo: FILE is limbo.json

It writes NAME.ders, the certificates and lists, each once and one behind the other, and NAME.cases. A case is a line
`case ID EXPECTED` and indented lines: `time SECONDS`, `name KIND VALUE`, `policy OID`, and by their numbers in NAME.ders
`anchor N…`, `ca N…`, `list N…` and `peer N`. EXPECTED is what the suite says: `valid` or `invalid`.

PyPI's package `cryptography_vectors` has PKITS_data, a work of NIST in the public domain. x509-limbo's own generator
writes limbo.json, with new keys each time.
"""

import base64
import datetime
import json
import pathlib
import re
import sys

# 2026-11-28, noon: all certificates of PKITS that are valid at all are valid then.
PKITS_TIME = 1795867200
# The policy that PKITS calls NIST-test-policy-N.
POLICY = "2.16.840.1.101.3.2.1.48.%d"
# Of PKITS's document: a section, its tests in their order without the word Test and the number. `+` is valid, `-` is
# invalid. Several policies are tests of their own: `+1` is valid with an initial policy set of NIST-test-policy-1.
# A star stands for no policy wanted.
PKITS = {
    "4.1": "+ValidSignatures -InvalidCASignature -InvalidEESignature +ValidDSASignatures "
    "+ValidDSAParameterInheritance -InvalidDSASignature",
    "4.2": "-InvalidCAnotBeforeDate -InvalidEEnotBeforeDate +Validpre2000UTCnotBeforeDate "
    "+ValidGeneralizedTimenotBeforeDate -InvalidCAnotAfterDate -InvalidEEnotAfterDate "
    "-Invalidpre2000UTCEEnotAfterDate +ValidGeneralizedTimenotAfterDate",
    "4.3": "-InvalidNameChainingEE -InvalidNameChainingOrder +ValidNameChainingWhitespace "
    "+ValidNameChainingWhitespace +ValidNameChainingCapitalization +ValidNameChainingUIDs "
    "+ValidRFC3280MandatoryAttributeTypes +ValidRFC3280OptionalAttributeTypes +ValidUTF8StringEncodedNames "
    "+ValidRolloverfromPrintableStringtoUTF8String +ValidUTF8StringCaseInsensitiveMatch",
    "4.4": "-MissingCRL -InvalidRevokedCA -InvalidRevokedEE -InvalidBadCRLSignature -InvalidBadCRLIssuerName "
    "-InvalidWrongCRL +ValidTwoCRLs -InvalidUnknownCRLEntryExtension -InvalidUnknownCRLExtension "
    "-InvalidUnknownCRLExtension -InvalidOldCRLnextUpdate -Invalidpre2000CRLnextUpdate "
    "+ValidGeneralizedTimeCRLnextUpdate +ValidNegativeSerialNumber -InvalidNegativeSerialNumber "
    "+ValidLongSerialNumber +ValidLongSerialNumber -InvalidLongSerialNumber +ValidSeparateCertificateandCRLKeys "
    "-InvalidSeparateCertificateandCRLKeys -InvalidSeparateCertificateandCRLKeys",
    "4.5": "+ValidBasicSelfIssuedOldWithNew -InvalidBasicSelfIssuedOldWithNew +ValidBasicSelfIssuedNewWithOld "
    "+ValidBasicSelfIssuedNewWithOld -InvalidBasicSelfIssuedNewWithOld +ValidBasicSelfIssuedCRLSigningKey "
    "-InvalidBasicSelfIssuedCRLSigningKey -InvalidBasicSelfIssuedCRLSigningKey",
    "4.6": "-InvalidMissingbasicConstraints -InvalidcAFalse -InvalidcAFalse +ValidbasicConstraintsNotCritical "
    "-InvalidpathLenConstraint -InvalidpathLenConstraint +ValidpathLenConstraint +ValidpathLenConstraint "
    "-InvalidpathLenConstraint -InvalidpathLenConstraint -InvalidpathLenConstraint -InvalidpathLenConstraint "
    "+ValidpathLenConstraint +ValidpathLenConstraint +ValidSelfIssuedpathLenConstraint "
    "-InvalidSelfIssuedpathLenConstraint +ValidSelfIssuedpathLenConstraint",
    "4.7": "-InvalidkeyUsageCriticalkeyCertSignFalse -InvalidkeyUsageNotCriticalkeyCertSignFalse "
    "+ValidkeyUsageNotCritical -InvalidkeyUsageCriticalcRLSignFalse -InvalidkeyUsageNotCriticalcRLSignFalse",
    "4.8": "+1-2AllCertificatesSamePolicy +*AllCertificatesNoPolicies +*-1DifferentPolicies -DifferentPolicies "
    "-DifferentPolicies +*+1-2OverlappingPolicies -DifferentPolicies -DifferentPolicies -DifferentPolicies "
    "+*+1+2AllCertificatesSamePolicies +*+1AllCertificatesAnyPolicy -DifferentPolicies "
    "+1+2+3AllCertificatesSamePolicies +1-2AnyPolicy +UserNoticeQualifier +UserNoticeQualifier "
    "+UserNoticeQualifier +1+2UserNoticeQualifier +UserNoticeQualifier +CPSPointerQualifier",
    "4.9": "+ValidRequireExplicitPolicy +ValidRequireExplicitPolicy -InvalidRequireExplicitPolicy "
    "+ValidRequireExplicitPolicy -InvalidRequireExplicitPolicy +ValidSelfIssuedrequireExplicitPolicy "
    "-InvalidSelfIssuedrequireExplicitPolicy -InvalidSelfIssuedrequireExplicitPolicy",
    "4.10": "+1-2ValidPolicyMapping -InvalidPolicyMapping -1+2ValidPolicyMapping -InvalidPolicyMapping "
    "+1-6ValidPolicyMapping +1-6ValidPolicyMapping -InvalidMappingFromanyPolicy -InvalidMappingToanyPolicy "
    "+ValidPolicyMapping -InvalidPolicyMapping +ValidPolicyMapping +1+2ValidPolicyMapping +ValidPolicyMapping "
    "+ValidPolicyMapping",
    "4.11": "-InvalidinhibitPolicyMapping +ValidinhibitPolicyMapping -InvalidinhibitPolicyMapping "
    "+ValidinhibitPolicyMapping -InvalidinhibitPolicyMapping -InvalidinhibitPolicyMapping "
    "+ValidSelfIssuedinhibitPolicyMapping -InvalidSelfIssuedinhibitPolicyMapping "
    "-InvalidSelfIssuedinhibitPolicyMapping -InvalidSelfIssuedinhibitPolicyMapping "
    "-InvalidSelfIssuedinhibitPolicyMapping",
    "4.12": "-InvalidinhibitAnyPolicy +ValidinhibitAnyPolicy +inhibitAnyPolicy -InvalidinhibitAnyPolicy "
    "-InvalidinhibitAnyPolicy -InvalidinhibitAnyPolicy +ValidSelfIssuedinhibitAnyPolicy "
    "-InvalidSelfIssuedinhibitAnyPolicy +ValidSelfIssuedinhibitAnyPolicy -InvalidSelfIssuedinhibitAnyPolicy",
    "4.13": "+ValidDNnameConstraints -InvalidDNnameConstraints -InvalidDNnameConstraints +ValidDNnameConstraints "
    "+ValidDNnameConstraints +ValidDNnameConstraints -InvalidDNnameConstraints -InvalidDNnameConstraints "
    "-InvalidDNnameConstraints -InvalidDNnameConstraints +ValidDNnameConstraints -InvalidDNnameConstraints "
    "-InvalidDNnameConstraints +ValidDNnameConstraints -InvalidDNnameConstraints -InvalidDNnameConstraints "
    "-InvalidDNnameConstraints +ValidDNnameConstraints +ValidSelfIssuedDNnameConstraints "
    "-InvalidSelfIssuedDNnameConstraints +ValidRFC822nameConstraints -InvalidRFC822nameConstraints "
    "+ValidRFC822nameConstraints -InvalidRFC822nameConstraints +ValidRFC822nameConstraints "
    "-InvalidRFC822nameConstraints +ValidDNandRFC822nameConstraints -InvalidDNandRFC822nameConstraints "
    "-InvalidDNandRFC822nameConstraints +ValidDNSnameConstraints -InvalidDNSnameConstraints "
    "+ValidDNSnameConstraints -InvalidDNSnameConstraints +ValidURInameConstraints -InvalidURInameConstraints "
    "+ValidURInameConstraints -InvalidURInameConstraints -InvalidDNSnameConstraints",
    "4.14": "+ValiddistributionPoint -InvaliddistributionPoint -InvaliddistributionPoint +ValiddistributionPoint "
    "+ValiddistributionPoint -InvaliddistributionPoint +ValiddistributionPoint -InvaliddistributionPoint "
    "-InvaliddistributionPoint +ValidNoissuingDistributionPoint -InvalidonlyContainsUserCertsCRL "
    "-InvalidonlyContainsCACertsCRL +ValidonlyContainsCACertsCRL -InvalidonlyContainsAttributeCerts "
    "-InvalidonlySomeReasons -InvalidonlySomeReasons -InvalidonlySomeReasons +ValidonlySomeReasons "
    "+ValidonlySomeReasons -InvalidonlySomeReasons -InvalidonlySomeReasons +ValidIDPwithindirectCRL "
    "-InvalidIDPwithindirectCRL +ValidIDPwithindirectCRL +ValidIDPwithindirectCRL -InvalidIDPwithindirectCRL "
    "-InvalidcRLIssuer +ValidcRLIssuer +ValidcRLIssuer +ValidcRLIssuer -InvalidcRLIssuer -InvalidcRLIssuer "
    "+ValidcRLIssuer -InvalidcRLIssuer -InvalidcRLIssuer",
    "4.15": "-InvaliddeltaCRLIndicatorNoBase +ValiddeltaCRL -InvaliddeltaCRL -InvaliddeltaCRL +ValiddeltaCRL "
    "-InvaliddeltaCRL +ValiddeltaCRL +ValiddeltaCRL -InvaliddeltaCRL -InvaliddeltaCRL",
    "4.16": "+ValidUnknownNotCriticalCertificateExtension -InvalidUnknownCriticalCertificateExtension",
}


def element(der, at=0):
    """The tag of the DER element at `at`, where its content begins, and where it ends."""
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[at + 2 : begin], "big")
    return der[at], begin, begin + length


def elements(der, begin, end):
    """The DER elements between two places, each with its tag."""
    while begin < end:
        tag, _, after = element(der, begin)
        yield tag, der[begin:after]
        begin = after


def inside(der):
    """The DER elements in a constructed one."""
    _, begin, end = element(der)
    return list(elements(der, begin, end))


class Pack:
    """The objects, each once, and the lines of the cases."""

    def __init__(self):
        self.numbers, self.lines = {}, []

    def number(self, der):
        """The number of an object."""
        return self.numbers.setdefault(der, len(self.numbers))

    def case(self, case, valid, **values):
        """Adds a case: values are texts, or lists of objects."""
        self.lines.append("case %s %s" % (case, "valid" if valid else "invalid"))
        for word, value in values.items():
            if isinstance(value, list):
                value = " ".join(str(self.number(der)) for der in value)
            if value:
                self.lines.append("  %s %s" % (word, value))

    def write(self, name):
        """Writes both files."""
        pathlib.Path(name + ".ders").write_bytes(b"".join(self.numbers))
        pathlib.Path(name + ".cases").write_text("\n".join(self.lines) + "\n", encoding="ascii")


def pkits(folder, pack):
    """Each signed message of PKITS has the certificates and lists of its test."""
    folder = pathlib.Path(folder)
    anchor = (folder / "certs" / "TrustAnchorRootCertificate.crt").read_bytes()
    peers = {path.read_bytes() for path in (folder / "certs").glob("*EE.crt")}
    files = {path.name.lower(): path for path in (folder / "smime").iterdir()}
    for section, tests in PKITS.items():
        for at, test in enumerate(tests.split(), 1):
            verdicts, name = re.fullmatch(r"((?:[+-][*\d]?)+)(.*)", test).groups()
            name += "Test%d" % at
            text = files["signed%s.eml" % name.lower()].read_text(encoding="ascii")
            signature = re.search(r'filename="smime.p7s"\s+(.*?)\s+--', text, re.S)[1]
            signed = inside(inside(inside(base64.b64decode(signature))[1][1])[0][1])
            certificates = [der for tag, part in signed if tag == 0xA0 for _, der in inside(part)]
            lists = [der for tag, part in signed if tag == 0xA1 for _, der in inside(part)]
            (peer,) = [der for der in certificates if der in peers] or [certificates[-1]]
            for part, (sign, policy) in enumerate(re.findall(r"([+-])([*\d]?)", verdicts), 1):
                parts = len(re.findall("[+-]", verdicts))
                pack.case(
                    "%s.%d%s-%s" % (section, at, ".%d" % part if parts > 1 else "", name),
                    sign == "+",
                    time=str(PKITS_TIME),
                    policy=POLICY % int(policy) if policy.isdigit() else "",
                    anchor=[anchor],
                    ca=[der for der in certificates if der not in (peer, anchor)],
                    list=lists,
                    peer=[peer],
                )


def limbo(file, pack):
    """A case of x509-limbo. Those without a peer's name are for any identity of the certificate."""
    kinds = {"DNS": "dns", "IP": "ip", "RFC822": "email"}

    def ders(texts):
        for text in texts or []:
            for body in re.findall(r"-----BEGIN [^-]*-----(.*?)-----END", text, re.S):
                yield base64.b64decode(body)

    for test in json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["testcases"]:
        peer, name = list(ders([test["peer_certificate"]])), test["expected_peer_name"]
        when = test["validation_time"] or "2026-11-28T12:00:00Z"
        pack.case(
            test["id"],
            test["expected_result"] == "SUCCESS",
            time=str(int(datetime.datetime.fromisoformat(when).timestamp())),
            name="%s %s" % (kinds[name["kind"]], name["value"]) if name else "",
            anchor=list(ders(test["trusted_certs"])),
            ca=list(ders(test["untrusted_intermediates"])),
            list=list(ders(test["crls"])),
            peer=peer[:1],
        )


def main():
    suites = {"pkits": pkits, "limbo": limbo}
    if len(sys.argv) != 4 or sys.argv[1] not in suites:
        sys.exit(__doc__)
    pack = Pack()
    suites[sys.argv[1]](sys.argv[2], pack)
    pack.write(sys.argv[3])


if __name__ == "__main__":
    main()
