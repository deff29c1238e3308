package dryrun

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

type (
	rawSignal struct {
		At   string          `json:"at"`
		Name string          `json:"name"`
		Key  string          `json:"key"`
		ID   string          `json:"id"`
		Data json.RawMessage `json:"data"`
	}
	rawVote struct {
		Choice  string          `json:"choice"`
		By      string          `json:"by"`
		Roles   []string        `json:"roles"`
		Comment string          `json:"comment"`
		Data    json.RawMessage `json:"data"`
		After   string          `json:"after"`
		Refused bool            `json:"refused"`
	}
	rawEmit struct {
		Name string          `json:"name"`
		Key  *string         `json:"key"`
		Data json.RawMessage `json:"data"`
	}
)

// outside reads what happens around the run: events, and answers to approvals.
func (r *reader) outside(at string, raw rawTest, t *Test) {
	if raw.Events != nil {
		t.signals = r.signals(at+"/events", raw.Events)
	}
	if raw.Approvals != nil && t.votes == nil {
		t.votes = make(map[string][]vote, len(raw.Approvals))
	}
	for _, step := range slices.Sorted(maps.Keys(raw.Approvals)) {
		t.votes[step] = r.votes(at+"/approvals/"+escape(step), raw.Approvals[step])
	}
}

func (r *reader) signals(at string, raw []rawSignal) []signal {
	all := make([]signal, len(raw))
	for i, e := range raw {
		place := at + "/" + strconv.Itoa(i)
		s := signal{signal: parley.Signal{ID: e.ID, Name: e.Name, Key: e.Key, Data: e.Data}}
		if s.signal.ID == "" {
			s.signal.ID = "event-" + strconv.Itoa(i+1)
		}
		if s.signal.Data == nil {
			s.signal.Data = null()
		}
		if e.At != "" {
			s.at = r.duration(place+"/at", e.At)
		}
		if err := s.signal.Validate(); err != nil {
			r.report(place, parley.Problem{Code: problemValue, Text: message(err)})
		}
		all[i] = s
	}
	return all
}

// votes reads the answers to one approval: a choice, an answer or a list of them.
func (r *reader) votes(at string, text json.RawMessage) []vote {
	if text[0] != '[' {
		return []vote{r.vote(at, text)}
	}
	var list []json.RawMessage
	r.decode(at, text, &list)
	all := make([]vote, len(list))
	for i, text := range list {
		all[i] = r.vote(at+"/"+strconv.Itoa(i), text)
	}
	return all
}

func (r *reader) vote(at string, text json.RawMessage) vote {
	var raw rawVote
	if text[0] == '"' {
		r.decode(at, text, &raw.Choice)
	} else {
		r.decode(at, text, &raw)
	}
	v := vote{refused: raw.Refused, Vote: workflow.Vote{Choice: raw.Choice, By: raw.By, Roles: raw.Roles, Comment: raw.Comment, Data: raw.Data}}
	if raw.After != "" {
		v.after = r.duration(at+"/after", raw.After)
	}
	return v
}

// emits reads the events that are expected; nil is not looked at.
func (r *reader) emits(at string, raw []json.RawMessage) []ExpectedEmit {
	if raw == nil {
		return nil
	}
	all := make([]ExpectedEmit, len(raw))
	for i, text := range raw {
		place := at + "/" + strconv.Itoa(i)
		var e rawEmit
		if text[0] == '"' {
			r.decode(place, text, &e.Name)
		} else {
			r.decode(place, text, &e)
		}
		all[i] = ExpectedEmit(e)
	}
	return all
}
