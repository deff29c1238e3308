package main

import (
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// TestRPCNotices proves that a peer that sends nonsense as fast as it can is told of in
// few lines, that none of it goes uncounted, and that one that errs now and then has a
// line each time.
func TestRPCNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said lockedBuffer
		a := &app{stderr: &said}
		a.shareStderr()
		n := a.notices()
		near, far := jsonrpc.Pipe()
		conn := jsonrpc.NewConn(near, jsonrpc.Config{Handler: practice(), Hooks: jsonrpc.Hooks{Notice: n.take}})
		var peer sync.WaitGroup
		peer.Go(func() {
			for {
				if _, err := far.Read(); err != nil {
					return
				}
			}
		})
		lines := func(want ...string) {
			t.Helper()
			synctest.Wait()
			got := strings.Split(strings.TrimSuffix(said.take(), "\n"), "\n")
			if len(got) != len(want) {
				t.Fatalf("%d lines, want %d: %.1000q", len(got), len(want), got)
			}
			for i := range want {
				if !strings.HasPrefix(got[i], "malformed: ") || !strings.HasSuffix(got[i], want[i]) {
					t.Errorf("%s, want ...%s", got[i], want[i])
				}
			}
		}
		_, _ = io.WriteString(far, strings.Repeat("no JSON\n", 5000))
		lines(make([]string, noticeLines)...)
		time.Sleep(noticeWindow)
		lines("(and 4979 more within 10s)")
		_, _ = io.WriteString(far, "no JSON\n")
		time.Sleep(noticeWindow)
		lines("")
		time.Sleep(noticeWindow)
		synctest.Wait() // for the end of the window, which is now
		_, _ = io.WriteString(far, "no JSON\n")
		lines("") // at once
		_, _ = io.WriteString(far, strings.Repeat("no JSON\n", 30))
		lines(make([]string, noticeLines-1)...)
		conn.Close()
		peer.Wait()
		n.end()
		lines("(and 10 more within 10s)")
		far.Close()
	})
}
