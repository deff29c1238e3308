package parley_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// shows reports the part of the canary that out shows, in any spelling.
func shows(out string) string {
	for _, part := range []string{"c4nary", "63346e617279", "YzRuYXJ5", "[99 52 110"} {
		if strings.Contains(strings.ToLower(out), strings.ToLower(part)) {
			return part
		}
	}
	return ""
}

type holder struct {
	Name   string
	Secret parley.Secret
	ptr    *parley.Secret
	own    parley.Secret
}

func TestSecretIsNeverShown(t *testing.T) {
	s := parley.NewSecret([]byte("c4nary"))
	agent := parley.Agent{Name: "a", Credential: s}
	spec := parley.AgentSpec{Auth: &parley.AuthSpec{Literal: s}}
	values := map[string]any{
		"itself": s, "pointer": &s, "slice": []parley.Secret{s}, "map": map[string]parley.Secret{"k": s}, "any": []any{map[string]any{"k": s}},
		"struct": holder{"n", s, &s, s}, "struct pointer": &holder{"n", s, &s, s},
		"agent": agent, "agents": []*parley.Agent{&agent}, "spec": spec, "array": [1]parley.Secret{s},
	}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%08b", "%p", "%10.3s"} {
			if part := shows(fmt.Sprintf(verb, v)); part != "" {
				t.Errorf("%s printed with %s shows %q", name, verb, part)
			}
		}
		if out, err := json.Marshal(v); err != nil || shows(string(out)) != "" {
			t.Errorf("%s as JSON: %s, %v", name, out, err)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v, slog.Group("g", "v", v))
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v, slog.Group("g", "v", v))
		if part := shows(log.String()); part != "" {
			t.Errorf("%s logged shows %q: %s", name, part, log.String())
		}
		if part := shows(fmt.Errorf("failed: %v: %w", v, errors.New("x")).Error()); part != "" {
			t.Errorf("%s in an error shows %q", name, part)
		}
		if part := shows(parley.Errorf(parley.CodeInternal, "failed: %+v", v).WithDetails(v).Error()); part != "" {
			t.Errorf("%s in our error shows %q", name, part)
		}
	}
	if text, err := s.MarshalText(); err != nil || string(text) != "[redacted]" {
		t.Errorf("MarshalText = %s, %v", text, err)
	}
	if out, err := xml.Marshal(s); err != nil || shows(string(out)) != "" {
		t.Errorf("XML: %s, %v", out, err)
	}
	if got := fmt.Sprint(s) + s.String() + s.LogValue().String(); got != strings.Repeat("[redacted]", 3) {
		t.Errorf("shown as %s", got)
	}
}

func TestSecretReveal(t *testing.T) {
	if s := parley.NewSecret([]byte("c4nary")); string(s.Reveal()) != "c4nary" || s.IsZero() {
		t.Errorf("Reveal = %q, IsZero = %v", s.Reveal(), s.IsZero())
	}
	for name, s := range map[string]parley.Secret{"zero": {}, "nil": parley.NewSecret(nil), "empty": parley.NewSecret([]byte{})} {
		if len(s.Reveal()) != 0 || !s.IsZero() {
			t.Errorf("%s: Reveal = %q, IsZero = %v", name, s.Reveal(), s.IsZero())
		}
		if got := fmt.Sprintf("%v", s); got != "[redacted]" {
			t.Errorf("%s is shown as %s: that there is none must not be told apart", name, got)
		}
	}
}

func TestAD5_DefaultRetryConfig(t *testing.T) {
	want := parley.RetryConfig{MaxRetries: 3, InitialDelay: time.Second, MaxDelay: 30 * time.Second, Multiplier: 2}
	if diff := cmp.Diff(want, parley.DefaultRetryConfig()); diff != "" {
		t.Error(diff)
	}
}

func TestTaskMessageID(t *testing.T) {
	if got := (parley.Task{ID: "run-1.write.2"}).MessageID(); got != "msg-run-1.write.2" {
		t.Errorf("MessageID = %s", got)
	}
}

func TestTerminal(t *testing.T) {
	for status, want := range map[parley.RunStatus]bool{
		parley.RunPending: false, parley.RunRunning: false, parley.RunCompleted: true, parley.RunFailed: true, parley.RunCancelled: true,
	} {
		if status.Terminal() != want {
			t.Errorf("run %s: Terminal = %v", status, !want)
		}
	}
	for status, want := range map[parley.StepStatus]bool{
		parley.StepPending: false, parley.StepRunning: false, parley.StepCompleted: true, parley.StepFailed: true,
		parley.StepCancelled: true, parley.StepSkipped: true,
	} {
		if status.Terminal() != want {
			t.Errorf("step %s: Terminal = %v", status, !want)
		}
	}
}
