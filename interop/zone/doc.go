// Package zone has no code, only tests: both ends of the zone connection against
// programs that are not ours.
//
// As Execution Zones there are the official AgentCore runtime SDKs for Python
// (python/runtime.py) and TypeScript (node/runtime.mjs), and a JSON-RPC server
// library (python/library.py), behind plain HTTP, TLS with client certificates, and
// a platform like AgentCore. As callers of ours there are boto3 (python/caller.py)
// and the AWS SDK for Go, with their signatures and their habit of repeating
// requests. The issuer of tokens is oidc-provider (node/issuer.mjs).
//
// The tests need Python 3.10 with pip and Node.js 20 with npm. What they install
// is kept in the folder that PARLEY_TEST_CACHE names, else in the user's cache
// folder.
package zone
