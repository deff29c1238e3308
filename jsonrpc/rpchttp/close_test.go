package rpchttp

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestCloseTellsWhatIsLost: what became known of notifications and responses when nobody read any
// more is what Close returns, each time; calls end in another way.
func TestCloseTellsWhatIsLost(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":7,"result":1}`
	for name, c := range map[string]struct {
		say    string
		after  time.Duration // of the answer
		status int
		want   int // status in the error of Close; 0: none, -1: without one
		told   bool
	}{
		"arrived":                   {aNotice, time.Second, http.StatusAccepted, 0, false},
		"refused before":            {aNotice, 0, http.StatusNotFound, http.StatusNotFound, false},
		"refused before, read":      {aNotice, 0, http.StatusNotFound, 0, true},
		"refused meanwhile":         {aNotice, time.Second, http.StatusNotFound, http.StatusNotFound, false},
		"a response":                {answer, time.Second, http.StatusNotFound, http.StatusNotFound, false},
		"a batch of notifications":  {"[" + aNotice + "," + aNotice + "]", time.Second, http.StatusNotFound, http.StatusNotFound, false},
		"too slow":                  {aNotice, time.Hour, http.StatusAccepted, -1, false},
		"a call":                    {aCall, time.Hour, http.StatusOK, 0, false},
		"a call that failed before": {aCall, 0, http.StatusNotFound, 0, false},
		"a batch with a call":       {"[" + aNotice + "," + aCall + "]", time.Hour, http.StatusOK, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := NewStream("http://h/", ClientConfig{CloseTimeout: time.Minute, Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				select {
				case <-time.After(c.after):
					return respond(c.status, "", ""), nil
				case <-r.Context().Done():
					return nil, context.Cause(r.Context())
				}
			})}})
			if err != nil {
				t.Fatal(err)
			}
			say(t, s, c.say)
			synctest.Wait()
			if c.told {
				if _, err := s.Read(); err == nil {
					t.Errorf("%s: Read has told nothing", name)
				}
			}
			for range 2 {
				err := s.Close()
				e, ok := errors.AsType[*Error](err)
				if ok != (c.want != 0) || ok && e.Status != max(c.want, 0) || !ok && err != nil {
					t.Errorf("%s: Close: %v", name, err)
				}
			}
		})
	}
}
