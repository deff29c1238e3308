package config_test

import (
	"strings"
	"testing"
)

// TestValues: where large values go is one section, its key a reference.
func TestValues(t *testing.T) {
	none := mustLoad(t, "", nil, nil).Values
	if none.ApartAbove != 0 || none.Store != "files" || none.Dir != "" || !none.S3.SecretKey.IsZero() {
		t.Errorf("%+v", none)
	}
	v := mustLoad(t, `
values:
  apart_above: 256KiB
  store: s3
  dir: ../shared
  s3: {endpoint: "http://127.0.0.1:1", region: eu-1, bucket: b, prefix: p/, path_style: on, access_key: me, secret_key: "file:secrets/pg", encryption: "aws:kms", kms_key: k}
`, nil, nil).Values
	b := v.S3
	if v.ApartAbove != 256<<10 || v.Store != "s3" || v.Dir != "/etc/shared" || string(b.SecretKey.Reveal()) != "s3cr3t" {
		t.Errorf("%+v", v)
	}
	if b.Endpoint != "http://127.0.0.1:1" || b.Region != "eu-1" || b.Bucket != "b" || b.Prefix != "p/" || !b.PathStyle || b.AccessKey != "me" ||
		b.Encryption != "aws:kms" || b.KMSKey != "k" {
		t.Errorf("%+v", b)
	}
	for _, bad := range []string{"apart_above: 65MiB", "store: tape", "s3: {secret_key: literal}", "s3: {encryption: rot13}"} {
		if _, err := load("values: {"+bad+"}", nil, nil); err == nil || strings.Contains(err.Error(), "literal\"") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestValuesBelongTogether: what a server would not start with is refused where it
// stands, and a bridge without a database keeps no values.
func TestValuesBelongTogether(t *testing.T) {
	for file, want := range map[string]string{
		"values: {store: s3}":                                                              "parley.yaml:1:17: value: values.store: s3 needs values.s3.bucket",
		"values: {store: s3, s3: {bucket: b, region: ''}}":                                 "parley.yaml:1:17: value: values.store: s3 needs values.s3.region",
		"values: {store: s3, s3: {bucket: b, access_key: me}}":                             "parley.yaml:1:49: value: values.s3.access_key: goes with values.s3.secret_key, which is not given",
		"values: {store: s3, s3: {bucket: b, secret_key: 'file:secrets/pg'}}":              "parley.yaml:1:49: value: values.s3.secret_key: goes with values.s3.access_key, which is not given",
		"database: {url: 'postgres://h/d'}\nvalues: {apart_above: 1MiB}":                   "parley.yaml:2:23: value: values.apart_above: keeps values in files, which all processes that share the database need: set values.dir to a folder that all of them see, or values.store: s3",
		"values: {store: s3}\nbridge: {ledger: none}":                                      "",
		"values: {store: s3, s3: {bucket: b}}":                                             "",
		"values: {apart_above: 1MiB}":                                                      "",
		"database: {url: 'postgres://h/d'}\nvalues: {apart_above: 1MiB, dir: /mnt/values}": "",
	} {
		got := ""
		if _, err := load(file, nil, nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", file, got, want)
		}
	}
}
