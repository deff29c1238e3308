package store

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// hotQueries are what runs each second or for each step.
func hotQueries(db *DB) map[string]string {
	return map[string]string{
		"touch":     touchRun + ifOpen,
		"update":    updateRun + ifSettled,
		"answer":    answerAttempt,
		"close":     closeAnswered,
		"hold":      holdAttempts,
		"claim":     claimAttempt,
		"again":     moveAgain,
		"takeover":  moveTakeover,
		"spent":     moveSpentLost,
		"publish":   publishAttempts(&db.dialect),
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
		"hand over": handOverAttempts(&db.dialect),
		"overdue":   selectOverdue,
		"result":    selectForResult,
		"gone":      selectGone,
		"forget":    forgetWorker,
		"foreign":   takeForeign(&db.dialect),
		"any":       anyForeign,
		"purge":     foreignOld,
		"copies":    anyCopy,
		"replayed":  replayedOfRun,
		"breakers":  selectBreakers,
		"breaker":   updateBreaker,
		"agent log": selectAgentLog,
		"calls":     selectCalls,
		"healths":   selectHealths,
		"in flight": countInFlight,
		"look":      saveHealth,
		"zone due":  anyZoneDue,
		"zone take": claimZone(&db.dialect),
		"zone beat": beatZone,
		"zone save": saveZoneAnswer,
		"unspread":  anyUnspread,
		"object":    selectObject,
		"objects":   selectReferences,
		"collected": selectCollected,
		"told":      selectWaiterNews,
		"waiters":   selectWaiters,
		"signals":   selectSignals,
		"tell":      tellWaiters,
		"tell one":  tellWaitersOf,
		"count":     countSignals,
		"take":      takeSignal,
		"old":       selectOldSignals,
		"unwait":    deleteWaiter,
		"see":       seeWaiter,
		"ended":     endedWorkflow,
		"kept":      oldestKept,
		"past":      selectPast,
		"remove":    deleteRun,
		"sizes":     sizesOfEvents,
		"sizes of":  sizesOfAttempts,
		"late of":   lateOfAttempts,
		"archived":  selectArchived,
		"live":      countLive,
		"open":      countOpen,
		"under way": countUnderWay,
		"unread":    countSettled,
		"late":      oldestVisible,
		"late runs": oldestDue,
	}
}

// What runs each second or for each step finds its rows by an index, however
// many other rows there are.
func TestPlans(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		plan := sqlitePlan
		if db.dialect.guesses {
			plan = postgresPlan
		}
		for name, query := range hotQueries(db) {
			t.Run(name, func(t *testing.T) { plan(t, db, query) })
		}
	})
}

func sqlitePlan(t *testing.T, db *DB, query string) {
	check(t, db.submit(t.Context(), prompt, func(s *session) error {
		args := make([]any, strings.Count(query, "?"))
		return s.query(`EXPLAIN QUERY PLAN `+query, func(r *record) error {
			r.next = 3
			step := r.str()
			t.Log(step)
			if strings.HasPrefix(step, "SCAN") && step != "SCAN w" && step != "SCAN c" && step != "SCAN worker" && step != "SCAN attempt USING COVERING INDEX attempt_settled" &&
				step != "SCAN attempt USING INDEX attempt_news" && step != "SCAN attempt USING INDEX attempt_owner" &&
				step != "SCAN waiter USING INDEX waiter_news" && step != "SCAN signal USING COVERING INDEX signal_new" && step != "SCAN waiting" &&
				step != "SCAN run USING INDEX run_live" && step != "SCAN attempt USING COVERING INDEX attempt_visible" && step != "SCAN counted" {
				t.Errorf("a whole table is read: %s", step)
			}
			return nil
		}, args...)
	}))
}

// PostgreSQL is not told to avoid reading whole tables here: it has to find the
// index good.
func postgresPlan(t *testing.T, db *DB, query string) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, db.path)
	check(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SET plan_cache_mode = force_generic_plan`)
	check(t, err)
	_, err = conn.Exec(ctx, `PREPARE q AS `+numberParameters(query))
	check(t, err)
	args := strings.TrimSuffix(strings.Repeat("NULL,", strings.Count(query, "?")), ",")
	if args != "" {
		args = "(" + args + ")"
	}
	rows, err := conn.Query(ctx, `EXPLAIN EXECUTE q`+args)
	check(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	for _, step := range steps {
		t.Log(step)
		if strings.Contains(step, "Seq Scan") && !strings.Contains(step, "Seq Scan on worker") {
			t.Errorf("a whole table is read: %s", step)
		}
	}
}
