package parley_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

func TestErrorf(t *testing.T) {
	err := parley.Errorf(parley.CodeAgentUnavailable, "agent %q: %w", "a", io.ErrUnexpectedEOF)
	if got := err.Error(); got != `agent_unavailable: agent "a": unexpected EOF` {
		t.Errorf("Error() = %s", got)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("what was wrapped is not found")
	}
	if plain := parley.Errorf(parley.CodeInvalid, "no"); plain.Unwrap() != nil {
		t.Errorf("Unwrap() = %v, want nil", plain.Unwrap())
	}
}

// TestErrorfNamesTheCodeOnce: one code for people to read, however often an error is
// wrapped; another one says more.
func TestErrorfNamesTheCodeOnce(t *testing.T) {
	inner := parley.Errorf(parley.CodeInvalid, "number: want %d", 7)
	for want, err := range map[string]*parley.Error{
		"invalid: labels: number: want 7":                   parley.Errorf(parley.CodeInvalid, "labels: %w", inner),
		"invalid: file: line 3: number: want 7, no more":    parley.Errorf(parley.CodeInvalid, "file: %w, no more", fmt.Errorf("line 3: %w", inner)),
		"invalid: again: labels: number: want 7":            parley.Errorf(parley.CodeInvalid, "again: %w", parley.Errorf(parley.CodeInvalid, "labels: %w", inner)),
		"agent_error: its answer: invalid: number: want 7":  parley.Errorf(parley.CodeAgentError, "its answer: %w", inner),
		"invalid: said invalid: number: want 7 and no more": parley.Errorf(parley.CodeInvalid, "said %s and no more", inner),
	} {
		if got := err.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The wrapped Go error goes to logs only.
func TestErrorIsEncodedWithoutWhatItWraps(t *testing.T) {
	err := parley.Errorf(parley.CodeAgentError, "failed: %w", io.EOF)
	err.Step, err.Attempt, err.Agent, err.Retryable = "write", 2, "writer", true
	err.Cause = parley.Errorf(parley.CodeTimeout, "late")
	err = err.WithDetails(map[string]string{"limit": "exchange"})
	const want = `{"code":"agent_error","message":"failed: EOF","step":"write","attempt":2,"agent":"writer","retryable":true,` +
		`"details":{"limit":"exchange"},"cause":{"code":"timeout","message":"late","retryable":false}}`
	out, e := json.Marshal(err)
	if diff := cmp.Diff(want, string(out)); e != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", e, diff)
	}
	var back parley.Error
	if e := json.Unmarshal(out, &back); e != nil {
		t.Fatal(e)
	}
	again, e := json.Marshal(&back)
	if diff := cmp.Diff(want, string(again)); e != nil || diff != "" {
		t.Errorf("%v after a round trip (-want +got):\n%s", e, diff)
	}
}

func TestWithDetails(t *testing.T) {
	err := parley.Errorf(parley.CodeInvalid, "bad: %w", io.EOF)
	detailed := err.WithDetails([]int{1})
	if err.Details != nil || string(detailed.Details) != "[1]" || !errors.Is(detailed, io.EOF) {
		t.Errorf("details %s of the copy, %s of the original", detailed.Details, err.Details)
	}
	// What JSON cannot hold keeps what was there.
	if got := detailed.WithDetails(math.NaN()); string(got.Details) != "[1]" {
		t.Errorf("details %s", got.Details)
	}
}

func TestCodeOf(t *testing.T) {
	ours := parley.Errorf(parley.CodeConflict, "taken")
	for _, tt := range []struct {
		err  error
		want parley.Code
	}{
		{nil, ""},
		{ours, parley.CodeConflict},
		{fmt.Errorf("outer: %w", ours), parley.CodeConflict},
		{errors.Join(io.EOF, ours), parley.CodeConflict},
		{parley.Errorf(parley.CodeInvalid, "outer: %w", ours), parley.CodeInvalid},
		{io.EOF, parley.CodeInternal},
	} {
		if got := parley.CodeOf(tt.err); got != tt.want {
			t.Errorf("CodeOf(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}
