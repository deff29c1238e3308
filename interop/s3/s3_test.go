package s3

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/s3"
	"github.com/parley-project/parley/internal/values/valuestest"
)

// A bucket passes the contract of stores, also below a prefix beside other keys.
func TestContract(t *testing.T) {
	g := newGateway(t)
	t.Run("bucket", func(t *testing.T) {
		valuestest.Run(t, func(t *testing.T) values.Store { return open(t, g.config(t, "")) })
	})
	t.Run("prefix", func(t *testing.T) {
		valuestest.Run(t, func(t *testing.T) values.Store {
			cfg := g.config(t, "parley/values/")
			for _, key := range []string{"other", "parley/other", "parley/values/other", "zz"} {
				_, err := g.client().PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &cfg.Bucket, Key: &key, Body: bytes.NewReader([]byte("x"))})
				check(t, err)
			}
			return open(t, cfg)
		})
	})
}

// What is wrong with the settings, or the server, is not taken for an object that
// is gone.
func TestNotGone(t *testing.T) {
	g := newGateway(t)
	good := g.config(t, "")
	name := valuestest.NameOf([]byte("a"), "00")
	check(t, open(t, good).Put(t.Context(), name, []byte("a")))
	for what, change := range map[string]func(*s3.Config){
		"wrong key":    func(c *s3.Config) { c.SecretKey = parley.NewSecret([]byte("another")) },
		"wrong bucket": func(c *s3.Config) { c.Bucket = "no-such-bucket" },
		"nobody there": func(c *s3.Config) { c.Endpoint = "http://127.0.0.1:1" },
	} {
		t.Run(what, func(t *testing.T) {
			cfg := good
			change(&cfg)
			s := open(t, cfg)
			if _, err := s.Get(t.Context(), name, 1); err == nil || errors.Is(err, values.ErrGone) {
				t.Errorf("get: %v", err)
			}
			if err := s.Put(t.Context(), valuestest.NameOf([]byte("b"), "00"), []byte("b")); err == nil {
				t.Error("put: no error")
			} else if strings.Contains(err.Error(), secretKey) {
				t.Errorf("the secret is in: %v", err)
			}
			if _, err := s.List(t.Context(), "", 10); err == nil {
				t.Error("list: no error")
			}
		})
	}
}

const doc = `
name: carry
version: "1"
steps:
  - id: first
    set: {copy: "${workflow.input.text}"}
  - id: wait
    event: go
  - id: last
    set: {copy: "${first.output.copy}"}
output: {text: "${last.output.copy}"}
`

// A run whose values are in a bucket waits while the server of the bucket is away,
// also across a restart, and goes on when it is back; others go on meanwhile.
func TestRun(t *testing.T) {
	g := newGateway(t)
	bucket := g.config(t, "p/")
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "flows"), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "flows", "carry.yaml"), []byte(doc), 0o600))
	cfg := server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", WorkflowDirs: []string{filepath.Join(dir, "flows")},
		DrainGrace: 100 * time.Millisecond, Values: server.ValuesConfig{ApartAbove: 10_000, S3: &bucket},
	}
	p := serve(t, cfg)
	text := strings.Repeat("large ", 50_000)
	big := p.begin(t, `{"text":"`+text+`"}`)
	small := p.begin(t, `{"text":"small"}`)
	p.reach(t, big, parley.RunRunning, "wait")
	list, err := open(t, bucket).List(t.Context(), "", 10)
	check(t, err)
	if len(list) != 2 { // the input and the first output
		t.Errorf("%d objects", len(list))
	}
	p.stop(t)

	g.stop()
	p = serve(t, cfg)
	p.signal(t, small)
	p.reach(t, small, parley.RunCompleted, "last")
	if _, err := p.Executor().Get(t.Context(), big); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Errorf("a run whose values are away: %v", err)
	}
	g.start()
	p.reach(t, big, parley.RunRunning, "wait")
	p.signal(t, big)
	run := p.reach(t, big, parley.RunCompleted, "last")
	var output struct{ Text string }
	check(t, json.Unmarshal(run.Output, &output))
	if output.Text != text {
		t.Errorf("%d bytes came back", len(output.Text))
	}
	p.stop(t)
}
