package store

import (
	"regexp"
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
		"claimed":   selectClaimed,
		"defer":     deferAttempt,
		"release":   moveRelease,
		"follow":    moveFollow,
		"settle":    moveSettle,
		"read":      closeSettled,
		"guess":     closeCancelled,
		"one":       selectAttempt,
		"some":      lookupText(lookupSizes[len(lookupSizes)-1]),
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
		"begun":     selectBegun,
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
		"mine":      claimForeignRow,
		"retry":     moveRetry,
		"over":      closeForeign,
		"purged":    purgeForeign,
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
		"key":       selectAccessKey,
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
		"archived":  selectArchived,
		"live":      countLive,
		"open":      countOpen,
		"under way": countUnderWay,
		"unread":    countSettled,
		"late":      oldestVisible,
		"late runs": oldestDue,
		"turns":     selectNextTurns,
		"crowded":   selectCrowdedLanes,
		"children":  selectChildNews,
		"tardy":     selectLateRuns,
		"tardy of":  selectLateNews,
		"is late":   isRecorded,
		"keep":      keepAttempt,
		"have late": selectHaveLate, "how many late": countLate,
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

// PostgreSQL is not told to avoid reading whole tables here, but where it writes:
// it has to find the index good. What names a row by its id looks for nothing else,
// also when a smaller index would do: that is full of dead entries.
func postgresPlan(t *testing.T, db *DB, query string) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, db.path)
	check(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SET plan_cache_mode = force_generic_plan`)
	check(t, err)
	texts := []string{numberParameters(query)}
	if strings.Contains(query, " WHERE id IN (") {
		// Of a table that is as good as empty it would rather read all.
		_, err = conn.Exec(ctx, `SET enable_seqscan = off`)
		check(t, err)
	}
	if strings.HasPrefix(query, "UPDATE ") {
		_, err = conn.Exec(ctx, `SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`)
		check(t, err)
		sd, err := conn.Prepare(ctx, "alone", texts[0])
		check(t, err)
		if merged, _ := mergedText(query, sd.ParamOIDs); merged != "" {
			texts = append(texts, merged)
		}
	}
	target := regexp.MustCompile(` using \w+ on (attempt|run|zone_question)  `) // not what a condition asks for
	byID := strings.Contains(query, " WHERE id = ? ") && !strings.Contains(query, "worker")
	for _, text := range texts {
		for _, step := range explain(t, conn, text, strings.Count(query, "?")) {
			t.Log(step)
			if strings.Contains(step, "Seq Scan") && !strings.Contains(step, "Seq Scan on worker") {
				t.Errorf("a whole table is read: %s", step)
			}
			if byID && target.MatchString(step) && !strings.Contains(step, "_pkey ") {
				t.Errorf("a row with a known id is looked for elsewhere: %s", step)
			}
		}
	}
}

func explain(t *testing.T, conn *pgx.Conn, text string, parameters int) []string {
	t.Helper()
	_, err := conn.Exec(t.Context(), `PREPARE q AS `+text)
	check(t, err)
	args := strings.TrimSuffix(strings.Repeat("NULL,", parameters), ",")
	if args != "" {
		args = "(" + args + ")"
	}
	rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE q`+args)
	check(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	_, err = conn.Exec(t.Context(), `DEALLOCATE q`)
	check(t, err)
	return steps
}
