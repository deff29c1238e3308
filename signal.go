package parley

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// MaxSignalText bounds the name, the key and the id of a [Signal], in characters.
const MaxSignalText = 255

// MaxSignalData bounds the data of a [Signal], in bytes (language.md §10).
const MaxSignalData = 8 << 20

// Signal is something that has happened, and that runs may wait for (language
// rule C8): an event in the words of the workflow language, where [Event] is an
// entry of a run's history.
type Signal struct {
	// ID tells it from others for 24 h: a repeated one is ignored.
	ID string `json:"id"`
	// Name says what has happened, Key to what: runs wait for both.
	Name string `json:"name"`
	Key  string `json:"key"`
	// Data is one JSON value.
	Data json.RawMessage `json:"data"`
	Time time.Time       `json:"time"`
	// Trace is that of the runs which the event starts. Nobody who waits sees it.
	Trace Trace `json:"-"`
}

// Validate refuses what no run could be told: the error has code invalid or
// limit. The id may be empty: whoever publishes the signal gives it one then.
func (s *Signal) Validate() error {
	for _, m := range []struct {
		name, text string
		needed     bool
	}{{"event", s.Name, true}, {"key", s.Key, false}, {"id", s.ID, false}} {
		switch n := utf8.RuneCountInString(m.text); {
		case m.needed && n == 0:
			return Errorf(CodeInvalid, "%s: an event needs a name", m.name)
		case !utf8.ValidString(m.text):
			return Errorf(CodeInvalid, "%s: this is not UTF-8", m.name)
		case n > MaxSignalText:
			return Errorf(CodeLimit, "%s: %d characters, the limit is %d", m.name, n, MaxSignalText)
		}
	}
	switch {
	case len(s.Data) > MaxSignalData:
		return Errorf(CodeLimit, "data: %d bytes, the limit is %d (values above it travel by reference, such as a URL)", len(s.Data), MaxSignalData)
	case len(s.Data) > 0 && !json.Valid(s.Data):
		return Errorf(CodeInvalid, "data: this is not JSON")
	}
	return nil
}

// SignalRequest publishes an event to all runs that wait for it, or will within
// 24 h, or delivers it to one run.
type SignalRequest struct {
	// Run is the only run that it is for; "" is all of them.
	Run string
	// Signal's ID is made if it is empty; its Time is given by whoever takes it.
	Signal Signal
}

// SignalReceipt says what became of a [SignalRequest].
type SignalReceipt struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Repeated: there was an event of that id within 24 h, so this one is ignored.
	Repeated bool `json:"repeated"`
}

// AwaitedSignal is what a step of kind wait_for_event waits for.
type AwaitedSignal struct {
	Name string `json:"name"`
	Key  string `json:"key"`
	// Since is the time from which on it is taken: the run's start, or that of the
	// step if Fresh is set.
	Since time.Time `json:"since"`
	Fresh bool      `json:"fresh,omitempty"`
}
