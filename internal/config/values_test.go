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
