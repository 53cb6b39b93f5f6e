"""A target's metrics page, fetched: a Page, or a Failure that says why there is none.

Rules of this file:

1. `fetch` never raises, except for cancellation.
2. One fetch per target at a time: a server that is slow must not be asked twice at once.
"""

from __future__ import annotations

from monitor.model import Failure, Page
from monitor.sources.connections import Connections
from monitor.sources.http_client import Answer, Clock, HttpClient, system_clock
from monitor.sources.page_checks import check_page
from monitor.sources.scrape_errors import ScrapeFailed, status_problem
from monitor.sources.scrape_target import BasicAuth, ScrapeTarget

__all__ = ["BasicAuth", "Connections", "ScrapeTarget", "Scraper", "system_clock"]

ACCEPT = "text/plain;version=0.0.4"
"""Classic text. Asked for OpenMetrics, engines rename samples (`sglang:` to `sglang_`)."""


class Scraper:
    """Fetches one target's page.

    `connections` may be shared between targets; whoever made it closes it. `client` asks the
    same server for other pages, with the same credentials.
    """

    def __init__(
        self,
        target: ScrapeTarget,
        *,
        connections: Connections | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.target = target
        self._connections = connections or Connections()
        self._shared = connections is not None
        self._clock = clock
        self._fetching = False
        self.client = HttpClient(target, self._connections, clock)

    async def fetch(self) -> Page | Failure:
        """GET the page once. A Page holds status 200's body; empty is a page too."""
        assert not self._fetching, f"target {self.target.name} is being fetched already"
        self._fetching = True
        try:
            return self._page(await self.client.get(accept=ACCEPT))
        except ScrapeFailed as failure:
            return Failure(self.target.name, self._clock(), failure.problem)
        finally:
            self._fetching = False

    def _page(self, answer: Answer) -> Page:
        if answer.status != 200:
            raise ScrapeFailed(status_problem(answer.status, answer.asked, self.target))
        problem = check_page(answer.body, answer.content_type)
        if problem is not None:
            raise ScrapeFailed(problem)
        return Page(
            target=self.target.name,
            at=answer.at,
            body=answer.body,
            content_type=answer.content_type,
            duration_seconds=answer.duration_seconds,
        )

    async def close(self) -> None:
        """Close the connections that are this target's alone."""
        if not self._shared:
            await self._connections.close()
