package store

import (
	"context"

	"github.com/parley-project/parley"
)

// turn is since when an open attempt counts as waiting for its agent, in
// microseconds: who waits longest goes first.
const turn = `scheduled_at - urgency * 30000000`

const selectAhead = `SELECT count(*) FROM (SELECT 1 FROM attempt
 WHERE state = 'open' AND held = 0 AND agent = ? AND (` + turn + `, id) < (SELECT ` + turn + `, id FROM attempt WHERE id = ?) LIMIT ?) AS ahead`

// Ahead counts the attempts that wait for an agent and go before the given one,
// at most [parley.MaxQueueCount].
func (db *DB) Ahead(ctx context.Context, agent, task string) (n int, err error) {
	err = db.read(ctx, selectAhead, func(r *record) error { n = int(r.int()); return r.err }, agent, task, int64(parley.MaxQueueCount))
	return n, err
}
