package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newKeyCommand(a *app) *cobra.Command {
	cmd := newGroup("key", "Keys for people and programs: make, list and revoke them", `
  parley key create ci --expires 90d
  parley key list
  parley key revoke ci`)
	cmd.AddCommand(newKeyCreate(a), newKeyList(a), newKeyRevoke(a))
	return cmd
}

// keyNames are the names of keys.
func keyNames(ctx context.Context, c *client.Client) ([]string, error) {
	page, err := c.Keys(ctx, client.PageQuery{Size: mostNames})
	var names []string
	for _, k := range page.Items {
		names = append(names, k.Name)
	}
	return names, err
}

func newKeyCreate(a *app) *cobra.Command {
	var req parley.AccessKeyRequest
	var role string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key and show it, this once",
		Long: `Make a key for one person or program and show it, this once: the server keeps a
digest of it. What is done with the key is recorded under its name, where who did
it is recorded.

An admin may do everything. A viewer may look at everything but keys, and change
nothing. The key that the server was configured with (auth.key, or the one in its
data folder) is an admin's, too; it is in no list and is not revoked here.`,
		Example: `  parley key create ci --expires 90d
  parley key create dashboard --role viewer
  parley key create ann -q > ann.key`,
		Args: need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name, req.Role = args[0], parley.KeyRole(role)
			if role != string(parley.KeyAdmin) && role != string(parley.KeyViewer) {
				return usagef("--role %s: the roles are admin and viewer", role)
			}
			if req.ExpiresIn == "" && cmd.Flags().Changed("expires") { // such as a variable that is not set
				return usagef("--expires is empty: a key would be good for ever; leave it out if that is meant")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			k, err := c.AddKey(cmd.Context(), req)
			if err != nil {
				return err
			}
			err = a.show(k, func(s *sheet) { s.line(k.Key) })
			if err == nil {
				err = a.unwritten()
			}
			if err != nil {
				a.note("the key is made, but could not be shown: type parley key revoke %s, and make another", k.Name)
				return err
			}
			a.note("this is shown only now; keep it where secrets are kept, and give it as PARLEY_KEY or --key env:NAME|file:PATH")
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&role, "role", string(parley.KeyAdmin), "admin or viewer")
	fl.StringVar(&req.ExpiresIn, "expires", "", "after which time it is good no more, such as 12h or 90d, at most 365d (default never)")
	complete(cmd, "role", string(parley.KeyAdmin), string(parley.KeyViewer))
	return cmd
}

func newKeyList(a *app) *cobra.Command {
	var p client.PageQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys with their roles and when they were last used",
		Long: `List the keys by name, those included that were revoked or have expired, until
their names are used anew; of these the newest 1,000. The configured key is not
among them.`,
		Example: `  parley key list
  parley key list -o json`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPage(p); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			page, err := c.Keys(cmd.Context(), p)
			if err != nil {
				return err
			}
			if err := showList(a, listing[parley.AccessKey]{
				whole: page, items: page.Items, columns: a.keyColumns(), none: "no keys but the configured one; make one: parley key create NAME",
			}); err != nil {
				return err
			}
			a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "key"})
			return nil
		},
	}
	pageFlags(cmd.Flags(), &p)
	return cmd
}

func (a *app) keyColumns() []column[parley.AccessKey] {
	return []column[parley.AccessKey]{
		{head: "KEY", fixed: true, cell: plain(func(k parley.AccessKey) string { return k.Name })},
		{head: "ROLE", fixed: true, cell: plain(func(k parley.AccessKey) string { return string(k.Role) })},
		{head: "STATE", fixed: true, cell: func(k parley.AccessKey) cell { return cell{string(k.State), inkOfKey(k.State)} }},
		{head: "EXPIRES", fixed: true, cell: plain(func(k parley.AccessKey) string { return a.when(k.ExpiresAt) })},
		{head: "LAST USED", fixed: true, cell: plain(func(k parley.AccessKey) string { return a.when(k.LastUsedAt) })},
		{head: "CREATED", wide: true, fixed: true, cell: plain(func(k parley.AccessKey) string { return a.when(&k.CreatedAt) })},
		{head: "BY", wide: true, fixed: true, cell: plain(func(k parley.AccessKey) string { return k.CreatedBy })},
		{head: "REVOKED", wide: true, fixed: true, cell: plain(func(k parley.AccessKey) string { return a.when(k.RevokedAt) })},
	}
}

func inkOfKey(s parley.KeyState) ink {
	if s == parley.KeyActive {
		return styleGood
	}
	return styleDim
}

func newKeyRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Let a key be good no more",
		Long: `Let a key be good no more: for the server that is asked at once, for others that
share its database within 5 s. Streams that were begun with it end soon after, within
20 s; waits go on to their end. Again changes nothing.`,
		Example: `  parley key revoke ci`,
		Args:    need("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			k, err := c.RevokeKey(cmd.Context(), args[0])
			if err != nil {
				return a.nearMiss(cmd.Context(), c, err, nameHint{name: args[0], list: keyNames, command: "parley key list"})
			}
			return a.show(k, func(s *sheet) { s.line(fmt.Sprintf("%s revoked %s", k.Name, a.when(k.RevokedAt))) })
		},
		ValidArgsFunction: a.completeNames(keyNames),
	}
}
