"""The one router: an address with several methods must be one view, or a GET would find the
POST's and answer 405."""

from ninja import Router

router = Router()
