package store

import (
	"strings"
	"testing"
)

// What runs each second or for each step finds its rows by an index, however
// many other rows there are.
func TestPlans(t *testing.T) {
	db := newDB(t, Options{})
	for name, query := range map[string]string{
		"touch":     touchRun + ifOpen,
		"update":    updateRun + ifSettled,
		"answer":    answerAttempt,
		"close":     closeAnswered,
		"hold":      holdAttempts,
		"claim":     claimAttempt,
		"again":     moveAgain,
		"takeover":  moveTakeover,
		"spent":     moveSpentLost,
		"publish":   publishAttempts(""),
		"visible":   anyVisible,
		"lost":      `SELECT 1` + lostClaims,
		"orphans":   selectOrphans,
		"owned":     selectOwned,
		"settled":   selectSettled,
		"news":      selectNews,
		"ask":       moveAsk,
		"numbered":  moveAskNumbered,
		"reply":     replyTo,
		"due":       selectDue,
		"unclosed":  selectUnclosed,
		"all":       selectAttempts,
		"events":    selectEvents,
		"page":      selectEventPage,
		"duplicate": selectByKey,
		"alive":     selectAlive,
	} {
		t.Run(name, func(t *testing.T) {
			check(t, db.submit(t.Context(), prompt, func(s *session) error {
				args := make([]any, strings.Count(query, "?"))
				return s.query(`EXPLAIN QUERY PLAN `+query, func(r *record) error {
					r.next = 3
					step := r.str()
					t.Log(step)
					if strings.HasPrefix(step, "SCAN") && step != "SCAN w" && step != "SCAN attempt USING COVERING INDEX attempt_settled" &&
						step != "SCAN attempt USING INDEX attempt_news" {
						t.Errorf("a whole table is read: %s", step)
					}
					return nil
				}, args...)
			}))
		})
	}
}
