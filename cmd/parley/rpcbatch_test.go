package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestRPCBatchPrintsWhatWasAnswered has a peer that answers one call of a batch and hangs
// up: that answer is printed, and the end tells of the other call.
func TestRPCBatchPrintsWhatWasAnswered(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- answerTheLast(l) }()
	var out, errs strings.Builder
	a := &app{
		stdin:  strings.NewReader(`[{"method":"a","id":"first"},{"method":"b"},{"method":"sum","id":"last"}]`),
		stdout: &out, stderr: &errs, now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	code := a.execute(t.Context(), []string{"rpc", "call", "tcp://" + l.Addr().String(), "--batch", "-"})
	_ = l.Close() // nobody is to wait for a connection that was not made
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if want := `{"id":"last","method":"sum","result":7}` + "\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if code != exitUnreachable || !strings.Contains(errs.String(), "hung up") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// answerTheLast takes a connection and a batch, and answers its last call only.
func answerTheLast(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return err
	}
	var entries []struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal(line, &entries); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c, `[{"jsonrpc":"2.0","result":7,"id":%s}]`+"\n", entries[len(entries)-1].ID)
	return err
}
